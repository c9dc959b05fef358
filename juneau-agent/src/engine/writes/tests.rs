use super::*;
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::Value;
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc;

/// A request that the server saw: method, path with query, body.
type Seen = (Method, String, Value);

/// A server that answers by status code, and the writer that talks to it.
fn start(
    answer: impl FnMut(&Method, &str) -> (u16, Value) + Send + 'static,
) -> (Writer, mpsc::UnboundedReceiver<Seen>) {
    let (sender, requests) = mpsc::unbounded_channel();
    let answer = Arc::new(Mutex::new(answer));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (sender, answer) = (sender.clone(), Arc::clone(&answer));
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let path = head.uri.to_string();
            let (code, value) = (answer.lock().unwrap())(&head.method, &path);
            // Whoever is aborted hears nothing.
            let _ = sender.send((head.method, path, serde_json::from_slice(&body).unwrap_or_default()));
            Ok::<_, kube::Error>(
                Response::builder().status(code).body(Body::from(value.to_string().into_bytes())).unwrap(),
            )
        }
    });
    (Writer::start(Client::new(service, "default"), "node-1".to_owned()), requests)
}

fn failure(code: u16) -> (u16, Value) {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "message": "no", "code": code,
    });
    (code, status)
}

fn endpoint() -> Value {
    json!({
        "apiVersion": kinds::API_VERSION, "kind": "NetworkEndpoint",
        "metadata": {"namespace": "red", "name": "a.eth0", "uid": "0123"},
        "spec": {"kind": "Pod", "nodeName": "node-1"},
    })
}

fn attached(ifindex: u32) -> Wanted {
    let attachment = Attachment { ifindex, host_mac_address: Some("02:00:00:00:00:01".into()), container_id: None };
    Wanted { attachments: [("red/a.eth0".to_owned(), attachment)].into(), refused: BTreeMap::new() }
}

#[tokio::test(start_paused = true)]
async fn an_attachment_is_applied_until_the_server_takes_it_and_taken_away() {
    let mut tries = 0;
    let (writer, mut requests) = start(move |_, _| {
        tries += 1;
        if tries == 1 { failure(429) } else { (200, endpoint()) }
    });
    writer.set(attached(7));
    for _ in 0..2 {
        let (method, path, body) = requests.recv().await.unwrap();
        assert_eq!(method, Method::PATCH);
        let (path, query) = path.split_once('?').unwrap();
        assert_eq!(path, "/apis/juneau.loutres.me/v1alpha1/namespaces/red/networkendpoints/a.eth0");
        assert!(query.contains("fieldManager=juneau-agent") && query.contains("force=true"), "{query}");
        assert_eq!(body["spec"], json!({"attachment": {"ifindex": 7, "hostMACAddress": "02:00:00:00:00:01"}}));
    }
    // The same again is nothing new.
    writer.set(attached(7));
    writer.set(attached(8));
    assert_eq!(requests.recv().await.unwrap().2["spec"]["attachment"]["ifindex"], 8);
    writer.set(Wanted::default());
    assert_eq!(requests.recv().await.unwrap().2["spec"], json!({}));
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_is_refused_gets_one_event_for_each_reason() {
    let (writer, mut requests) = start(|method, path| match (method, path.contains("/events")) {
        (&Method::GET, false) => (200, endpoint()),
        (_, true) => (
            201,
            json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e", "namespace": "red"}, "eventTime": null}),
        ),
        _ => failure(500),
    });
    let refuse = |why: &str| {
        let refused = [("red/a.eth0".to_owned(), why.to_owned())].into();
        writer.set(Wanted { attachments: BTreeMap::new(), refused });
    };
    refuse("its Pod is another; mend it");
    assert_eq!(requests.recv().await.unwrap().0, Method::GET);
    let (method, _, event) = requests.recv().await.unwrap();
    assert_eq!((method, &event["note"]), (Method::POST, &json!("its Pod is another; mend it")));
    assert_eq!((&event["type"], &event["reason"]), (&json!("Warning"), &json!("Rejected")));
    assert_eq!((&event["regarding"]["name"], &event["regarding"]["uid"]), (&json!("a.eth0"), &json!("0123")));
    assert_eq!(event["reportingController"], "juneau-agent");
    refuse("its Pod is another; mend it");
    refuse("it is late; hurry");
    requests.recv().await.unwrap();
    let (method, _, event) = requests.recv().await.unwrap();
    assert_eq!((method, &event["note"]), (Method::POST, &json!("it is late; hurry")));
    // Once.
    let more = tokio::time::timeout(Duration::from_secs(3600), requests.recv()).await;
    assert!(more.is_err(), "{more:?}");
}
