//! The webhook as an API server meets it: over TLS, with a certificate that is replaced while it listens, and with
//! bodies that are not what they should be.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use axum::body::Body;
use axum::http::{Request, StatusCode};
use juneau_operator::admission::{Admission, router};
use juneau_operator::certificates::{Bundle, Resolver, tls};
use juneau_operator::http::IDLE_OF_API_SERVERS;
use juneau_operator::plan::Config;
use juneau_operator::state::{Event, State};
use juneau_operator::view::{Kind, Object};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::Instant;
use tower::ServiceExt as _;

const VPC: &str = "/validate-juneau-loutres-me-v1alpha1-vpc";
const POD: &str = "/validate--v1-pod";
const SUBNET: &str = "/validate-juneau-loutres-me-v1alpha1-subnet";

/// What the API server has, by path, and how often it was asked. What it does not have is not there; a null is no answer.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<(BTreeMap<String, Value>, u32)>>);

impl Server {
    fn with(objects: &[(&str, Value)]) -> Self {
        let objects = objects.iter().map(|(path, object)| ((*path).to_owned(), object.clone())).collect();
        Self(Arc::new(Mutex::new((objects, 0))))
    }

    fn asked(&self) -> u32 {
        self.0.lock().unwrap().1
    }

    fn client(&self) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let object = {
                let mut server = server.0.lock().unwrap();
                server.1 += 1;
                assert_eq!((request.method().as_str(), request.uri().query()), ("GET", None));
                server.0.get(request.uri().path()).cloned()
            };
            async move {
                let absent =
                    json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "message": "", "code": 404});
                let (status, body) = match object {
                    Some(Value::Null) => std::future::pending().await,
                    Some(object) if object["kind"] == "Status" => (503, object),
                    Some(object) => (200, object),
                    None => (404, absent),
                };
                let body = kube::client::Body::from(body.to_string().into_bytes());
                Ok::<_, std::convert::Infallible>(http::Response::builder().status(status).body(body).unwrap())
            }
        });
        kube::Client::new(service, "default")
    }
}

fn admission(state: &Arc<State>) -> Admission {
    admission_at(state, &Server::default())
}

fn admission_at(state: &Arc<State>, server: &Server) -> Admission {
    let (config, seen) = watch::channel(Arc::new(Config::default()));
    // Held for as long as the test runs.
    std::mem::forget(config);
    Admission { state: Arc::clone(state), client: server.client(), config: seen, counts: Default::default() }
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
    post_to(admission(state), path, body).await
}

async fn post_to(admission: Admission, path: &str, body: impl Into<Body>) -> (StatusCode, String) {
    let request = Request::post(path).header("content-type", "application/json").body(body.into()).unwrap();
    let response = router(admission, true).oneshot(request).await.unwrap();
    let status = response.status();
    let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

async fn ask(state: &Arc<State>, path: &str, question: &Value) -> Value {
    ask_at(state, &Server::default(), path, question).await
}

async fn ask_at(state: &Arc<State>, server: &Server, path: &str, question: &Value) -> Value {
    let (status, body) = post_to(admission_at(state, server), path, question.to_string()).await;
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

fn refusal(answer: &Value) -> &str {
    assert_eq!((&answer["allowed"], &answer["status"]["code"]), (&json!(false), &json!(403)), "{answer}");
    answer["status"]["message"].as_str().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_refusal_waits_a_moment_for_what_was_created_just_before() {
    let state = synced();
    let vpc = |name: &str| {
        let vpc = json!({"metadata": {"name": name}, "spec": {}});
        Event::Found(Object::from_json(Kind::Vpc, vpc).unwrap())
    };
    state.handle(vpc("red"));
    let subnet = json!({"metadata": {"name": "red-a"}, "spec": {"vpc": "red", "cidr": "10.0.1.0/24"}});
    state.handle(Event::Found(Object::from_json(Kind::Subnet, subnet).unwrap()));
    // What is in the way may be gone already.
    let server = Server::default();
    let overlapping = question("Subnet", "red-b", json!({"vpc": "red", "cidr": "10.0.1.0/25"}));
    let begun = Instant::now();
    let answer = ask_at(&state, &server, SUBNET, &overlapping).await;
    assert!(refusal(&answer).contains("Subnet red-a") && !refusal(&answer).contains("API server"), "{answer}");
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_millis(900) && waited < Duration::from_secs(2), "{waited:?}");
    assert_eq!(server.asked(), 0);

    // What is missing may come, while the server is being asked for it.
    let late = Arc::clone(&state);
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(200)).await;
        late.handle(vpc("blue"));
    });
    let silent = Server::with(&[("/apis/juneau.loutres.me/v1alpha1/vpcs/blue", Value::Null)]);
    let begun = Instant::now();
    let subnet = question("Subnet", "blue-a", json!({"vpc": "blue", "cidr": "10.0.1.0/24"}));
    assert_eq!(ask_at(&state, &silent, SUBNET, &subnet).await["allowed"], true);
    assert!(begun.elapsed() < Duration::from_millis(400), "{:?}", begun.elapsed());
    assert_eq!(silent.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_the_view_lacks_is_asked_for_before_anything_is_refused() {
    const OURS: &str = "/apis/juneau.loutres.me/v1alpha1";
    let state = synced();
    let only = json!({"allowedNamespaces": {"matchLabels": {"tenant": "red"}}});
    let objects = [
        (format!("{OURS}/vpcs/red"), json!({"metadata": {"name": "red"}, "spec": only})),
        (
            format!("{OURS}/subnets/red-a"),
            json!({"metadata": {"name": "red-a"}, "spec": {"vpc": "red", "cidr": "10.0.1.0/24"}}),
        ),
        (format!("{OURS}/routetables/red-t"), json!({"metadata": {"name": "red-t"}, "spec": {"vpc": "red"}})),
        ("/api/v1/namespaces/red".to_owned(), json!({"metadata": {"name": "red", "labels": {"tenant": "red"}}})),
        ("/api/v1/namespaces/blue".to_owned(), json!({"metadata": {"name": "blue"}})),
    ];
    let objects: Vec<_> = objects.iter().map(|(path, object)| (path.as_str(), object.clone())).collect();
    let begun = Instant::now();
    let subnet = |vpc: &str, table: &str| {
        question("Subnet", "x", json!({"vpc": vpc, "cidr": "10.0.2.0/24", "routeTable": table}))
    };
    let pod = |namespace: &str, subnet: &str| {
        let metadata =
            json!({"name": "p", "namespace": namespace, "annotations": {"juneau.loutres.me/subnet": subnet}});
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u-1", "operation": "CREATE", "name": "p", "namespace": namespace,
            "kind": {"group": "", "version": "v1", "kind": "Pod"}, "object": {"metadata": metadata}}})
    };
    // Each missing object is asked for once; what it names, next.
    for (path, question, asked, refused) in [
        (SUBNET, subnet("red", "red-t"), 2, None),
        (SUBNET, subnet("green", "red-t"), 1, Some("Vpc green does not exist")),
        (SUBNET, subnet("red", "green-t"), 2, Some("RouteTable green-t does not exist")),
        (POD, pod("red", "red-a"), 3, None),
        (POD, pod("blue", "red-a"), 3, Some("Namespace/blue may not enter Vpc/red")),
        (POD, pod("red", "green-a"), 1, Some("Subnet green-a does not exist")),
        // Nobody can have made it.
        (SUBNET, subnet("../subnets/red-a", "red-t"), 0, Some("Vpc ../subnets/red-a does not exist")),
    ] {
        let server = Server::with(&objects);
        let answer = ask_at(&state, &server, path, &question).await;
        match refused {
            None => assert_eq!(answer["allowed"], true, "{answer}"),
            Some(says) => assert!(refusal(&answer).contains(says), "{answer}"),
        }
        assert_eq!(server.asked(), asked, "{question}");
    }
    // Nothing was waited for but what may still change: labels of a Namespace.
    assert!(begun.elapsed() < Duration::from_millis(1100), "{:?}", begun.elapsed());
    state.read(|view| assert!(view.vpcs.is_empty() && view.namespaces.is_empty(), "only watches change the view"));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_be_asked_is_named_in_the_refusal() {
    const RED: &str = "/apis/juneau.loutres.me/v1alpha1/vpcs/red";
    let overloaded = json!({"kind": "Status", "status": "Failure", "reason": "ServiceUnavailable", "code": 503,
        "message": "etcd is gone"});
    let odd = json!({"metadata": {"name": "red"}, "spec": {"allowedNamespaces": 7}});
    for (said, says) in [(Value::Null, "in time"), (overloaded, "etcd is gone"), (odd, "cannot be decoded")] {
        let server = Server::with(&[(RED, said)]);
        let subnet = question("Subnet", "red-a", json!({"vpc": "red", "cidr": "10.0.1.0/24"}));
        let begun = Instant::now();
        let answer = ask_at(&synced(), &server, SUBNET, &subnet).await;
        let message = refusal(&answer);
        assert!(message.contains("Vpc red does not exist") && message.contains(says), "{message}");
        assert!(message.contains("try again"), "{message}");
        let waited = begun.elapsed();
        assert!(waited >= Duration::from_millis(900) && waited < Duration::from_millis(1100), "{waited:?}");
        assert_eq!(server.asked(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_answered_before_everything_was_read() {
    let state = Arc::new(State::new([Kind::Vpc]));
    let (status, said) = post(&state, VPC, question("Vpc", "red", json!({})).to_string()).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{said}");
}

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
        router(admission(&synced()), true),
        Some(config),
        false,
        IDLE_OF_API_SERVERS,
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
        let router = router(admission(&synced()), true);
        tokio::spawn(juneau_operator::http::serve(listener, router, Some(config), http2, IDLE_OF_API_SERVERS, stopped));
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
