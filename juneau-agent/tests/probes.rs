//! Probes that the node's agent executes inside Pods, asked for as a kubelet does.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::agent::{Node, until};
use support::{Pod, in_node, lonely_underlay};
use tokio_rustls::TlsAcceptor;

const SERVER: &str = "127.0.0.1:9911";
const HTTP: u16 = 8080;
const HTTPS: u16 = 8443;
const GRPC: u16 = 50051;
/// Where nobody listens.
const NOBODY: u16 = 9;

/// Waits for nobody.
async fn forever() -> Response<Full<Bytes>> {
    std::future::pending().await
}

/// What a Pod of the tenant answers.
async fn page(tenant: &str, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (status, location) = match request.uri().path() {
        path if path.trim_start_matches('/') == tenant => (200, None),
        "/ok" => (200, None),
        "/teapot" => (418, None),
        "/hop" => (302, Some("/ok")),
        "/hop-to-tls" => (301, Some("https://10.0.1.10:8443/ok")),
        "/loop" => (307, Some("/loop")),
        "/away" => (302, Some("http://10.0.2.10/ok")),
        "/endless" => return forever().await,
        "/kubelet" if header("user-agent") == "kube-probe/1.37" && header("accept") == "*/*" => (204, None),
        "/headers" if header("host") == "h.example" && header("x-a") == "b" && header("user-agent") == "me" => {
            (200, None)
        }
        "/address" if header("host") == "10.0.1.10:8080" => (200, None),
        _ => (404, None),
    };
    let mut response = Response::builder().status(status);
    if let Some(location) = location {
        response = response.header("location", location);
    }
    response.body(Full::from("the tenant's own words")).unwrap()
}

/// What a Pod of the tenant says of its health: `SERVING` for itself as a service and for the whole.
async fn health(
    tenant: &str,
    request: Request<Incoming>,
) -> Response<http_body_util::combinators::BoxBody<Bytes, Infallible>> {
    assert_eq!(request.uri().path(), "/grpc.health.v1.Health/Check");
    let question = request.into_body().collect().await.unwrap().to_bytes();
    let service = question.get(7..).unwrap_or_default();
    let serving = service.is_empty() || service == tenant.as_bytes();
    let answer = Full::from(vec![0, 0, 0, 0, 2, 8, if serving { 1 } else { 2 }]);
    let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), "0".parse().unwrap())]);
    let body = answer.with_trailers(async move { Some(Ok(trailers)) }).boxed();
    Response::builder().header("content-type", "application/grpc").body(body).unwrap()
}

fn acceptor() -> TlsAcceptor {
    let made = rcgen::generate_simple_self_signed(["somebody".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    TlsAcceptor::from(Arc::new(config))
}

/// Listens in the Pod at its address, not at its loopback device's.
fn serve(pod: &Pod, tenant: &'static str) {
    let listeners = pod.run(|| {
        [HTTP, HTTPS, GRPC].map(|port| {
            let listener = TcpListener::bind(("10.0.1.10", port)).unwrap();
            listener.set_nonblocking(true).unwrap();
            listener
        })
    });
    let [http, https, grpc] = listeners;
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let pages = move |request| async move { Ok::<_, Infallible>(page(tenant, &request).await) };
            let acceptor = acceptor();
            let [http, https, grpc] = [http, https, grpc].map(|one| tokio::net::TcpListener::from_std(one).unwrap());
            let one = async {
                loop {
                    let (stream, _) = http.accept().await.unwrap();
                    let io = TokioIo::new(stream);
                    tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(io, service_fn(pages)));
                }
            };
            let two = async {
                loop {
                    let (stream, _) = https.accept().await.unwrap();
                    let acceptor = acceptor.clone();
                    tokio::spawn(async move {
                        let io = TokioIo::new(acceptor.accept(stream).await.unwrap());
                        hyper::server::conn::http1::Builder::new().serve_connection(io, service_fn(pages)).await
                    });
                }
            };
            let three = async {
                loop {
                    let (stream, _) = grpc.accept().await.unwrap();
                    let service =
                        service_fn(move |request| async move { Ok::<_, Infallible>(health(tenant, request).await) });
                    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    tokio::spawn(server.serve_connection(TokioIo::new(stream), service));
                }
            };
            tokio::join!(one, two, three)
        })
    });
}

/// What is asked for, and what is answered to it.
struct Case {
    action: Value,
    purpose: &'static str,
    status: u16,
    says: &'static str,
}

fn case(action: Value, status: u16, says: &'static str) -> Case {
    Case { action, purpose: "readinessProbe", status, says }
}

fn http(path: &str) -> Value {
    json!({"httpGet": {"path": path, "port": HTTP}})
}

fn cases(tenant: &str) -> Vec<Case> {
    let own = http(&format!("/{tenant}"));
    let (red, blue) = if tenant == "red" { (200, 404) } else { (404, 200) };
    let headers = json!([{"name": "Host", "value": "h.example"}, {"name": "X-A", "value": "b"}, {"name": "user-agent", "value": "me"}]);
    let mut cases = vec![
        case(own, 200, "ok"),
        case(http("/red"), red, ""),
        case(http("/blue"), blue, ""),
        case(http("red"), red, ""),
        case(http("/teapot?a=b"), 418, "status 418"),
        case(http("/kubelet"), 200, "ok"),
        case(http("/address"), 200, "ok"),
        case(json!({"httpGet": {"path": "/headers", "port": HTTP, "httpHeaders": headers}}), 200, "ok"),
        case(http("/hop"), 200, "ok"),
        case(http("/hop-to-tls"), 200, "ok"),
        case(http("/loop"), 503, "10 redirects"),
        case(http("/away"), 302, "status 302"),
        case(json!({"httpGet": {"path": "/ok", "port": HTTPS, "scheme": "HTTPS"}}), 200, "ok"),
        case(json!({"httpGet": {"path": "/ok", "port": HTTP, "scheme": "HTTPS"}}), 503, "TLS"),
        case(json!({"httpGet": {"path": "/ok", "port": "web"}}), 503, "no port \"web\""),
        case(json!({"httpGet": {"path": "/ok", "port": NOBODY}}), 503, "10.0.1.10:9"),
        // Whatever somebody writes there by hand, it is the Pod that is asked.
        case(json!({"httpGet": {"host": "192.168.77.11", "path": format!("/{tenant}"), "port": HTTP}}), 200, "ok"),
        case(json!({"tcpSocket": {"host": "127.0.0.1", "port": 9911}}), 503, "10.0.1.10:9911"),
        case(json!({"tcpSocket": {"port": HTTP}}), 200, "ok"),
        case(json!({"tcpSocket": {"port": NOBODY}}), 503, "refused"),
        case(json!({"tcpSocket": {"port": 0}}), 503, "port 0"),
        case(json!({"grpc": {"port": GRPC}}), 200, "ok"),
        case(json!({"grpc": {"port": GRPC, "service": "red"}}), if tenant == "red" { 200 } else { 503 }, ""),
        case(json!({"grpc": {"port": GRPC, "service": "nobody"}}), 503, "NOT_SERVING"),
        case(json!({"grpc": {"port": HTTP}}), 503, ""),
        case(json!({"exec": {"command": ["true"]}}), 503, "cannot be understood"),
        case(http("/endless"), 504, "in time"),
    ];
    // A handler has succeeded when it was answered; no answer is how a kubelet hears that it was not.
    cases.push(Case { purpose: "preStop", ..case(http("/teapot"), 200, "ok") });
    cases.push(Case { purpose: "postStart", ..case(json!({"httpGet": {"path": "/", "port": NOBODY}}), 0, "") });
    cases
}

fn token(tenant: &str, number: usize) -> String {
    format!("{:032x}", number + if tenant == "red" { 0x100 } else { 0x200 })
}

fn annotation(tenant: &str) -> String {
    let configs: serde_json::Map<String, Value> = cases(tenant)
        .into_iter()
        .enumerate()
        .map(|(number, case)| {
            let config =
                json!({"container": "main", "purpose": case.purpose, "timeoutSeconds": 1, "action": case.action});
            (token(tenant, number), config)
        })
        .collect();
    Value::from(configs).to_string()
}

/// Asks as a kubelet does; the status and the text, or 0 when there is no answer.
fn ask(token: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(SERVER).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
    let head = "Host: 127.0.0.1:9911\r\nUser-Agent: kube-probe/1.37\r\nAccept: */*\r\nConnection: close\r\n";
    write!(stream, "GET /v1/probes/{token} HTTP/1.1\r\n{head}\r\n").unwrap();
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return (0, text) };
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn answers_are_right(tenant: &str) {
    for (number, case) in cases(tenant).into_iter().enumerate() {
        let (status, text) = ask(&token(tenant, number));
        assert!(status == case.status && text.contains(case.says), "{tenant}: {}: {status} {text}", case.action);
        assert!(!text.contains("own words"), "{text}");
    }
}

fn annotate(node: &Node, tenant: &str) {
    let from = format!("  name: a1\n  namespace: {tenant}\n  uid: {tenant}-a1-0001\n  annotations:\n");
    let to = format!("{from}    juneau.loutres.me/probe-configs: '{}'\n", annotation(tenant));
    node.edit(&format!("{tenant}.yaml"), &from, &to);
}

#[test]
fn pods_with_one_address_on_one_node_each_give_their_own_answer() {
    in_node(|| {
        lonely_underlay();
        let node = Node::new("node-1");
        annotate(&node, "red");
        annotate(&node, "blue");
        let namespaces = node.directory.path().join("netns");
        std::fs::create_dir(&namespaces).unwrap();
        std::fs::write(namespaces.join("none"), "none").unwrap();
        let here = |pod: &Pod, name: &str| std::os::unix::fs::symlink(&pod.netns, namespaces.join(name)).unwrap();
        let told = ["--netns-dir", namespaces.to_str().unwrap()];
        let agent = node.start_with(&told).ready();
        let [red, blue, other] = [Pod::new(), Pod::new(), Pod::new()];
        here(&other, "a-nobody");
        here(&blue, "b");
        here(&red, "r");
        assert_eq!(ask(&token("red", 0)).0, 404, "not attached yet");
        for (pod, tenant) in [(&red, "red"), (&blue, "blue")] {
            assert_eq!(agent.attach(pod, tenant, "a1").address, "10.0.1.10/24");
            serve(pod, tenant);
            answers_are_right(tenant);
        }
        for wrong in ["", "x", &"0".repeat(32), &"A".repeat(32), "../../status"] {
            assert_eq!(ask(wrong).0, 404, "{wrong}");
        }

        // Probes of one that hang are in nobody else's way, and all of them end.
        let endless = cases("red").iter().position(|case| case.status == 504).unwrap();
        let hanging: Vec<_> = (0..64).map(|_| std::thread::spawn(move || ask(&token("red", endless)))).collect();
        let begun = Instant::now();
        for _ in 0..20 {
            assert_eq!(ask(&token("blue", 0)).0, 200);
        }
        assert!(begun.elapsed() < Duration::from_millis(900), "{:?}", begun.elapsed());
        assert!(hanging.into_iter().all(|one| one.join().unwrap().0 == 504));

        // Nobody but the node itself can ask.
        assert!(TcpStream::connect("192.168.77.11:9911").is_err());
        red.run(|| assert!(TcpStream::connect(SERVER).is_err()));

        // A new agent finds them by itself.
        drop(agent);
        assert!(TcpStream::connect(SERVER).is_err());
        let agent = node.start_with(&told);
        until("it listens", || TcpStream::connect(SERVER).ok()).unwrap();
        assert_eq!((ask(&token("red", 1)).0, ask(&token("blue", 1)).0), (200, 404));
        let agent = agent.ready();

        // Who is gone is gone at once.
        agent.detach(&red, "red", "a1");
        assert_eq!(ask(&token("red", 0)).0, 404);
        drop(blue);
        std::fs::remove_file(namespaces.join("b")).unwrap();
        let begun = Instant::now();
        until("blue's is gone", || matches!(ask(&token("blue", 0)).0, 404 | 410).then_some(())).unwrap();
        assert!(begun.elapsed() < Duration::from_secs(5));
    });
}

#[test]
fn an_address_that_is_taken_is_a_problem_and_is_had_as_soon_as_it_is_free() {
    in_node(|| {
        lonely_underlay();
        let node = Node::new("node-1");
        let taken = TcpListener::bind(SERVER.parse::<SocketAddr>().unwrap()).unwrap();
        let agent = node.start().ready();
        agent.wait("it is said", |status| {
            status.problems.iter().any(|problem| problem.object == format!("address {SERVER}"))
        });
        drop(taken);
        agent.wait("it is over", |status| status.problems.iter().all(|problem| !problem.object.starts_with("address")));
        assert_eq!(ask(&token("red", 0)).0, 404);
        assert!(agent.status().ready);
    });
}
