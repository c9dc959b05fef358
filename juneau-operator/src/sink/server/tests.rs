use super::*;
use crate::plan::Target;
use crate::view::Object;
use http::Response;
use serde_json::json;
use std::sync::{Arc, Mutex};

fn subnet() -> Object {
    let document = json!({
        "metadata": {"name": "red-a", "uid": "u1", "resourceVersion": "7", "finalizers": ["f"]},
        "spec": {"vpc": "red", "cidr": "10.0.1.0/24"}, "status": {"vni": 100},
    });
    Object::from_json(Kind::Subnet, document).unwrap()
}

fn endpoint() -> Object {
    let document = json!({
        "metadata": {"name": "a.eth0", "namespace": "red", "uid": "u1", "resourceVersion": "7"},
        "spec": {"kind": "Pod", "nodeName": "n", "subnet": "red-a"},
    });
    Object::from_json(Kind::NetworkEndpoint, document).unwrap()
}

fn parts(change: &Change) -> (String, Value, String) {
    let request = request(change).unwrap();
    let line = format!("{} {}", request.method(), request.uri());
    let media = request.headers()["content-type"].to_str().unwrap().to_owned();
    (line, serde_json::from_slice(request.body()).unwrap(), media)
}

#[test]
fn every_change_but_a_creation_carries_uid_and_version() {
    let (line, body, _) = parts(&Change::Create(subnet()));
    assert_eq!(
        line,
        "POST /apis/juneau.loutres.me/v1alpha1/subnets?fieldManager=juneau-operator&fieldValidation=Strict"
    );
    assert_eq!((&body["kind"], &body["apiVersion"]), (&json!("Subnet"), &json!("juneau.loutres.me/v1alpha1")));
    assert!(body.get("status").is_none() && body["metadata"].get("resourceVersion").is_none());
    assert_eq!(body["metadata"]["finalizers"], json!(["f"]));

    let (line, body, _) = parts(&Change::Status(subnet()));
    assert_eq!(line, "PUT /apis/juneau.loutres.me/v1alpha1/subnets/red-a/status?fieldManager=juneau-operator");
    assert_eq!((&body["metadata"]["uid"], &body["metadata"]["resourceVersion"]), (&json!("u1"), &json!("7")));
    assert_eq!(body["status"]["vni"], 100);

    let (line, body, media) = parts(&Change::Metadata(subnet()));
    assert!(line.starts_with("PATCH ") && media == "application/merge-patch+json", "{line} {media}");
    let wanted = json!({"uid": "u1", "resourceVersion": "7", "finalizers": ["f"], "ownerReferences": null});
    assert_eq!(body, json!({"metadata": wanted}));

    let (line, body, media) = parts(&Change::Spec(endpoint()));
    let path = "/apis/juneau.loutres.me/v1alpha1/namespaces/red/networkendpoints/a.eth0";
    assert_eq!(line, format!("PATCH {path}?fieldManager=juneau-operator&force=true"));
    assert_eq!(media, "application/apply-patch+yaml");
    assert_eq!(body["metadata"], json!({"name": "a.eth0", "namespace": "red", "uid": "u1", "resourceVersion": "7"}));
    assert_eq!(body["spec"]["subnet"], "red-a");

    let (line, body, _) = parts(&Change::Delete(Target::of(&endpoint())));
    assert_eq!(line, format!("DELETE {path}"));
    assert_eq!(body["preconditions"], json!({"uid": "u1", "resourceVersion": "7"}));
}

#[test]
fn what_the_table_of_rights_does_not_have_is_not_written() {
    let node = Object::from_json(Kind::Node, json!({"metadata": {"name": "n"}})).unwrap();
    for change in [Change::Status(node.clone()), Change::Create(node.clone()), Change::Delete(Target::of(&node))] {
        assert!(matches!(request(&change), Err(RequestError::NotWritten(_))), "{change}");
    }
}

async fn answered(change: &Change, response: Response<&'static str>) -> Outcome {
    let response = Arc::new(Mutex::new(Some(response)));
    let service = tower::service_fn(move |_: Request<Body>| {
        let response = response.lock().unwrap().take().unwrap().map(|text| Body::from(text.as_bytes().to_vec()));
        async move { Ok::<_, std::convert::Infallible>(response) }
    });
    write(&kube::Client::new(service, "default"), change).await
}

fn response(status: u16, body: &'static str) -> Response<&'static str> {
    Response::builder().status(status).body(body).unwrap()
}

#[tokio::test]
async fn answers_say_what_to_do() {
    let status = Change::Status(subnet());
    let create = Change::Create(endpoint());
    let written = r#"{"metadata": {"name": "red-a", "resourceVersion": "8"}, "spec": {"vpc": "red", "cidr": "c"}}"#;
    let Outcome::Written(object) = answered(&status, response(200, written)).await else { panic!() };
    assert_eq!(object.metadata().resource_version.as_deref(), Some("8"));
    assert_eq!(answered(&Change::Delete(Target::of(&endpoint())), response(200, "{}")).await, Outcome::Deleted);
    for code in [404, 409, 410] {
        assert!(matches!(answered(&status, response(code, "{}")).await, Outcome::Behind(_)), "{code}");
    }
    // It exists already: the view is behind. The namespace does not exist: that will not change by itself.
    assert!(matches!(answered(&create, response(409, "{}")).await, Outcome::Behind(_)));
    assert!(matches!(answered(&create, response(404, "{}")).await, Outcome::Failed(_)));
    for code in [500, 502, 503, 504] {
        assert!(matches!(answered(&status, response(code, "busy")).await, Outcome::Failed(_)), "{code}");
    }
    for code in [400, 422] {
        assert!(matches!(answered(&status, response(code, "{}")).await, Outcome::Refused(_)), "{code}");
    }
    let Outcome::Forbidden(why) = answered(&status, response(403, r#"{"message": "no way"}"#)).await else { panic!() };
    assert!(why.contains("update subnets/status") && why.contains("no way"), "{why}");
    let ending = r#"{"message": "x", "details": {"causes": [{"reason": "NamespaceTerminating"}]}}"#;
    assert!(matches!(answered(&create, response(403, ending)).await, Outcome::Refused(_)));
    // A success that cannot be read.
    assert!(matches!(answered(&status, response(200, "nonsense")).await, Outcome::Failed(_)));
}

#[tokio::test]
async fn the_server_says_how_long_to_wait() {
    let status = Change::Status(subnet());
    let with = |header: &str, body| Response::builder().status(429).header("Retry-After", header).body(body).unwrap();
    let seconds = |outcome| match outcome {
        Outcome::Throttled(pause) => pause.as_secs(),
        other => panic!("{other:?}"),
    };
    // Priority and fairness answers in plain text.
    assert_eq!(seconds(answered(&status, with("7", "Too many requests")).await), 7);
    assert_eq!(seconds(answered(&status, response(429, r#"{"details": {"retryAfterSeconds": 3}}"#)).await), 3);
    assert_eq!(seconds(answered(&status, response(429, "")).await), 1);
    assert_eq!(seconds(answered(&status, with("86400", "")).await), 60);
    assert_eq!(seconds(answered(&status, with("Wed, 21 Oct 2026 07:28:00 GMT", "")).await), 1);
}
