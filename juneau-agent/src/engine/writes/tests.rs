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

fn attachment(ifindex: u32) -> Attachment {
    Attachment { ifindex, host_mac_address: Some("02:00:00:00:00:01".into()), container_id: None }
}

fn attached(ifindex: u32, is_said: bool) -> Wanted {
    let told = Told { uid: "0123".into(), attachment: attachment(ifindex), is_said };
    Wanted { attachments: [("red/a.eth0".to_owned(), told)].into(), ..Wanted::default() }
}

fn left(ifindex: u32) -> Wanted {
    let left = Left { uid: "0123".into(), attachment: attachment(ifindex) };
    Wanted { left: [("red/a.eth0".to_owned(), left)].into(), ..Wanted::default() }
}

async fn nothing_more(requests: &mut mpsc::UnboundedReceiver<Seen>) {
    let more = tokio::time::timeout(Duration::from_secs(3600), requests.recv()).await;
    assert!(more.is_err(), "{more:?}");
}

#[tokio::test(start_paused = true)]
async fn an_attachment_is_applied_until_the_server_takes_it_and_taken_away() {
    let mut tries = 0;
    let (writer, mut requests) = start(move |_, _| {
        tries += 1;
        if tries == 1 { failure(429) } else { (200, endpoint()) }
    });
    writer.set(attached(7, false));
    for _ in 0..2 {
        let (method, path, body) = requests.recv().await.unwrap();
        assert_eq!(method, Method::PATCH);
        let (path, query) = path.split_once('?').unwrap();
        assert_eq!(path, "/apis/juneau.loutres.me/v1alpha1/namespaces/red/networkendpoints/a.eth0");
        assert!(query.contains("fieldManager=juneau-agent") && query.contains("force=true"), "{query}");
        assert_eq!(body["spec"], json!({"attachment": {"ifindex": 7, "hostMACAddress": "02:00:00:00:00:01"}}));
        assert_eq!(body["metadata"]["uid"], "0123");
    }
    // The same again is nothing new.
    writer.set(attached(7, false));
    writer.set(attached(8, false));
    assert_eq!(requests.recv().await.unwrap().2["spec"]["attachment"]["ifindex"], 8);
    // Detached; the server is seen to say so only later.
    writer.set(left(8));
    assert_eq!(requests.recv().await.unwrap().2, json!({"metadata": {"uid": "0123"}, "spec": {"attachment": null}}));
    writer.set(Wanted::default());
    nothing_more(&mut requests).await;
}

#[tokio::test(start_paused = true)]
async fn what_the_server_says_already_is_not_told_again_but_what_somebody_changed_is() {
    let (writer, mut requests) = start(|_, _| (200, endpoint()));
    writer.set(attached(7, true));
    nothing_more(&mut requests).await;
    writer.set(attached(7, false));
    assert_eq!(requests.recv().await.unwrap().2["spec"]["attachment"]["ifindex"], 7);
    // On its way to be seen.
    writer.set(Wanted::default());
    assert_eq!(requests.recv().await.unwrap().2["spec"], json!({"attachment": null}));
    nothing_more(&mut requests).await;
}

#[tokio::test(start_paused = true)]
async fn what_an_earlier_agent_left_is_taken_away_once_and_what_is_gone_is_left_alone() {
    let (writer, mut requests) = start(|_, _| failure(404));
    writer.set(left(5));
    assert_eq!(requests.recv().await.unwrap().2["spec"], json!({"attachment": null}));
    nothing_more(&mut requests).await;
    // An endpoint that has gone is not made by telling its attachment.
    writer.set(attached(6, false));
    requests.recv().await.unwrap();
    nothing_more(&mut requests).await;
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_is_refused_gets_one_event_for_each_reason() {
    let (writer, mut requests) = start(|_, path| match path.contains("/events") {
        true => (
            201,
            json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e", "namespace": "red"}, "eventTime": null}),
        ),
        false => failure(500),
    });
    let refuse = |why: &str| {
        let refusal = Refusal { uid: "0123".into(), why: why.to_owned() };
        writer.set(Wanted { refused: [("red/a.eth0".to_owned(), refusal)].into(), ..Wanted::default() });
    };
    // What comes in the wrong order is no reason to complain.
    refuse("its Pod does not exist; make it");
    tokio::time::sleep(Duration::from_secs(1)).await;
    refuse("its Pod is another; mend it");
    let (method, _, event) = requests.recv().await.unwrap();
    assert_eq!((method, &event["note"]), (Method::POST, &json!("its Pod is another; mend it")));
    assert_eq!((&event["type"], &event["reason"]), (&json!("Warning"), &json!("Rejected")));
    assert_eq!((&event["regarding"]["name"], &event["regarding"]["uid"]), (&json!("a.eth0"), &json!("0123")));
    assert_eq!(event["reportingController"], "juneau-agent");
    refuse("its Pod is another; mend it");
    refuse("it is late; hurry");
    let (method, _, event) = requests.recv().await.unwrap();
    assert_eq!((method, &event["note"]), (Method::POST, &json!("it is late; hurry")));
    // Once.
    nothing_more(&mut requests).await;
    // Mended, and broken in the same way again: the Event that is there counts it.
    writer.set(Wanted::default());
    tokio::time::sleep(Duration::from_secs(1)).await;
    refuse("it is late; hurry");
    assert_eq!(requests.recv().await.unwrap().0, Method::PATCH);
}
