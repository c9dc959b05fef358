//! The webhook as an API server meets it: over TLS, with a certificate that is replaced while it listens, and with
//! bodies that are not what they should be.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use axum::body::Body;
use axum::http::{Request, StatusCode};
use juneau_operator::admission::{Admission, router};
use juneau_operator::certificates::{Bundle, Resolver, tls};
use juneau_operator::plan::Config;
use juneau_operator::state::{Event, State};
use juneau_operator::view::{Kind, Object};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::Instant;
use tower::ServiceExt as _;

const VPC: &str = "/validate-juneau-loutres-me-v1alpha1-vpc";
const SUBNET: &str = "/validate-juneau-loutres-me-v1alpha1-subnet";

fn admission(state: &Arc<State>) -> Admission {
    let (config, seen) = watch::channel(Arc::new(Config::default()));
    // Held for as long as the test runs.
    std::mem::forget(config);
    Admission { state: Arc::clone(state), config: seen, counts: Default::default() }
}

fn synced() -> Arc<State> {
    Arc::new(State::new([]))
}

fn question(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u-1", "operation": "CREATE", "name": name,
        "kind": {"group": "juneau.loutres.me", "version": "v1alpha1", "kind": kind},
        "object": {"metadata": {"name": name}, "spec": spec},
    }})
}

async fn post(state: &Arc<State>, path: &str, body: impl Into<Body>) -> (StatusCode, String) {
    let request = Request::post(path).header("content-type", "application/json").body(body.into()).unwrap();
    let response = router(admission(state)).oneshot(request).await.unwrap();
    let status = response.status();
    let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

async fn ask(state: &Arc<State>, path: &str, question: &Value) -> Value {
    let (status, body) = post(state, path, question.to_string()).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(answer["response"]["uid"], "u-1");
    answer["response"].clone()
}

#[tokio::test(start_paused = true)]
async fn bodies_that_are_not_questions_get_a_clear_answer() {
    let state = synced();
    let good = question("Vpc", "red", json!({}));
    assert_eq!(ask(&state, VPC, &good).await["allowed"], true);
    let mut other_version = good.clone();
    other_version["apiVersion"] = "admission.k8s.io/v2".into();
    let mut no_request = good.clone();
    no_request.as_object_mut().unwrap().remove("request");
    let mut odd = good.clone();
    odd["request"]["operation"] = json!({"a": 1});
    for (body, says) in [
        ("".to_owned(), "not JSON"),
        ("{".to_owned(), "not JSON"),
        ("[]".to_owned(), "not an AdmissionReview"),
        ("\u{0}\u{1}".to_owned(), "not JSON"),
        ("[".repeat(100_000), "not JSON"),
        (other_version.to_string(), "not an AdmissionReview"),
        (no_request.to_string(), "request"),
        (odd.to_string(), "request"),
        (question("Subnet", "x", json!({})).to_string(), "this path reviews Vpc"),
    ] {
        let (status, said) = post(&state, VPC, body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{said}");
        assert!(said.contains(says), "{said}");
    }
    let (status, _) = post(&state, VPC, vec![b' '; 9 << 20]).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(post(&state, "/validate-nothing", "{}").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_waits_a_moment_for_what_was_created_just_before() {
    let state = synced();
    let subnet = question("Subnet", "red-a", json!({"vpc": "red", "cidr": "10.0.1.0/24"}));
    let begun = Instant::now();
    let answer = ask(&state, SUBNET, &subnet).await;
    assert_eq!((&answer["allowed"], &answer["status"]["code"]), (&json!(false), &json!(403)));
    assert!(answer["status"]["message"].as_str().unwrap().contains("Vpc red does not exist"), "{answer}");
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_millis(900) && waited < Duration::from_secs(2), "{waited:?}");

    let late = Arc::clone(&state);
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let vpc = json!({"metadata": {"name": "red"}, "spec": {}});
        late.handle(Event::Found(Object::from_json(Kind::Vpc, vpc).unwrap()));
    });
    let begun = Instant::now();
    assert_eq!(ask(&state, SUBNET, &subnet).await["allowed"], true);
    assert!(begun.elapsed() < Duration::from_millis(400), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_answered_before_everything_was_read() {
    let state = Arc::new(State::new([Kind::Vpc]));
    let (status, said) = post(&state, VPC, question("Vpc", "red", json!({})).to_string()).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{said}");
}

/// Asks for the health of what listens there, trusting what `bundle` says.
/// A client that trusts a certificate's authority and offers these protocols.
async fn tls_client(
    port: u16,
    bundle: &Bundle,
    protocols: &[&str],
) -> Result<tokio_rustls::client::TlsStream<TcpStream>, std::io::Error> {
    let mut roots = rustls::RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(bundle.authorities.as_bytes()) {
        roots.add(authority.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let name = ServerName::try_from("127.0.0.1").unwrap();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

async fn over_tls(port: u16, bundle: &Bundle) -> Result<String, std::io::Error> {
    let mut stream = tls_client(port, bundle, &[]).await?;
    let body = question("Vpc", "red", json!({})).to_string();
    let length = body.len();
    let head = format!("POST {VPC} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    stream.write_all((head + &body).as_bytes()).await?;
    let mut said = String::new();
    stream.read_to_string(&mut said).await?;
    Ok(said)
}

#[tokio::test]
async fn a_certificate_is_replaced_while_the_webhook_listens() {
    let hosts: BTreeSet<String> = ["127.0.0.1".to_owned()].into();
    let now = SystemTime::now();
    let old = Bundle::make(&hosts, now, None).unwrap();
    let new = Bundle::make(&hosts, now, None).unwrap();
    let resolver = Arc::new(Resolver::default());
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (stop, stopped) = watch::channel(false);
    let config = Arc::new(tls(Arc::clone(&resolver), false).unwrap());
    let server = tokio::spawn(juneau_operator::http::serve(
        listener,
        router(admission(&synced())),
        Some(config),
        false,
        stopped,
    ));

    assert!(over_tls(port, &old).await.is_err(), "nothing is served yet");
    resolver.serve(old.clone()).unwrap();
    let said = over_tls(port, &old).await.unwrap();
    assert!(said.starts_with("HTTP/1.1 200") && said.contains("\"allowed\":true"), "{said}");
    assert!(over_tls(port, &new).await.is_err());

    resolver.serve(new.clone()).unwrap();
    assert!(over_tls(port, &new).await.unwrap().starts_with("HTTP/1.1 200"));
    assert!(over_tls(port, &old).await.is_err());
    // One that cannot be used changes nothing.
    assert!(resolver.serve(Bundle { key: old.key.clone(), ..new.clone() }).is_err());
    assert!(over_tls(port, &new).await.is_ok());

    // Somebody who connects and says nothing holds up nobody, and not the end either.
    let silent = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    assert!(over_tls(port, &new).await.is_ok());
    stop.send_replace(true);
    tokio::time::timeout(Duration::from_secs(5), server).await.unwrap().unwrap();
    drop(silent);
    assert!(TcpStream::connect(("127.0.0.1", port)).await.is_err());
}

#[tokio::test]
async fn http_2_is_spoken_when_it_is_asked_for_and_only_then() {
    let bundle = Bundle::make(&["127.0.0.1".to_owned()].into(), SystemTime::now(), None).unwrap();
    for (http2, agreed) in [(false, "http/1.1"), (true, "h2")] {
        let resolver = Arc::new(Resolver::default());
        resolver.serve(bundle.clone()).unwrap();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (_stop, stopped) = watch::channel(false);
        let config = Arc::new(tls(resolver, http2).unwrap());
        let router = router(admission(&synced()));
        tokio::spawn(juneau_operator::http::serve(listener, router, Some(config), http2, stopped));
        let stream = tls_client(port, &bundle, &["h2", "http/1.1"]).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(agreed.as_bytes()));
        assert_eq!(tls_client(port, &bundle, &["h2"]).await.is_ok(), http2);
        assert!(over_tls(port, &bundle).await.unwrap().starts_with("HTTP/1.1 200"));
        // Without a handshake that says so: the first bytes of HTTP/2 on a connection that agreed on nothing.
        let mut stream = tls_client(port, &bundle, &[]).await.unwrap();
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
        let mut first = [0; 9];
        let heard = stream.read_exact(&mut first).await.is_ok() && first[3] == 4;
        assert_eq!(heard, http2, "settings");
    }
}
