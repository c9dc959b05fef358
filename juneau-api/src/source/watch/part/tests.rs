//! What is asked for when a VPC becomes needed.

use super::super::WatchSource;
use super::*;
use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::mpsc;

const GROUP: &str = "/apis/juneau.loutres.me/v1alpha1";

fn object(kind: &str, name: &str, version: u64, spec: &Value) -> Value {
    let namespace = (kind != "Subnet").then_some("tenant");
    let metadata = json!({"name": name, "namespace": namespace, "resourceVersion": version.to_string()});
    json!({"apiVersion": "juneau.loutres.me/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec})
}

fn interface(name: &str, node: &str, version: u64) -> Value {
    let pod = json!({"name": name, "uid": name, "interface": "eth0"});
    object("NetworkInterface", name, version, &json!({"nodeName": node, "subnet": "s", "podRef": pod}))
}

fn answer(code: u16, body: &Value) -> Response<Body> {
    Response::builder().status(code).body(Body::from(format!("{body}\n").into_bytes())).unwrap()
}

fn refusal(code: u16) -> Response<Body> {
    answer(code, &json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": "Refused"}))
}

fn list(items: &[Value]) -> Response<Body> {
    answer(200, &json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "5"}, "items": items}))
}

/// A server that lists one Subnet, and whose watch of interfaces tells of an end at version 20 and of one on this node at
/// version 18. `part` answers what is asked for of the Subnet alone.
fn server(path: &str, query: &str, part: &impl Fn(&str) -> u16) -> Option<Response<Body>> {
    let parameter = |text: &str| query.split('&').any(|pair| pair == text);
    let plural = path.rsplit('/').next().unwrap();
    if query.contains("spec.subnet") {
        return Some(match part(query) {
            200 => list(&[]),
            code => refusal(code),
        });
    }
    if parameter("sendInitialEvents=true") {
        return Some(refusal(422));
    }
    if !parameter("watch=true") {
        let subnet = object("Subnet", "s", 4, &json!({"vpc": "v", "cidr": "10.0.0.0/24"}));
        return Some(list(if plural == "subnets" { std::slice::from_ref(&subnet) } else { &[] }));
    }
    (plural == "networkinterfaces" && parameter("resourceVersion=5")).then(|| {
        let event = |kind: &str, object: Value| format!("{}\n", json!({"type": kind, "object": object}));
        let events = [
            event("ADDED", interface("other", "node-2", 17)),
            event("DELETED", interface("other", "node-2", 20)),
            event("ADDED", interface("own", "node-1", 18)),
        ];
        Response::new(Body::from(events.concat().into_bytes()))
    })
}

/// What is asked for of the Subnet alone, which is so many lists, until all is known that is needed.
async fn asked(count: usize, part: impl Fn(&str) -> u16 + Send + Sync + 'static) -> Vec<String> {
    let (sender, mut requests) = mpsc::unbounded_channel();
    let part = Arc::new(part);
    let service = tower::service_fn(move |request: Request<Body>| {
        let (path, query) = (request.uri().path().to_owned(), request.uri().query().unwrap_or_default().to_owned());
        let answer = server(&path, &query, &*part);
        if query.contains("spec.subnet") {
            sender.send(format!("{}?{query}", path.trim_start_matches(GROUP))).unwrap();
        }
        async move {
            match answer {
                Some(answer) => Ok::<_, kube::Error>(answer),
                None => std::future::pending().await,
            }
        }
    });
    let client = Client::new(service, "default");
    let (told, mut changed) = tokio::sync::watch::channel(());
    let source = WatchSource::start(&client, "node-1", Duration::from_secs(60), move || {
        told.send_replace(());
    });
    let mut asked = Vec::new();
    for _ in 0..count {
        match timeout(Duration::from_secs(600), requests.recv()).await {
            Ok(request) => asked.push(request.unwrap()),
            Err(_) => panic!("asked for {asked:?} alone; {:?}", source.read()),
        }
    }
    while source.read().unknown > 0 || source.read().view.workloads.is_empty() {
        changed.changed().await.unwrap();
    }
    assert!(requests.try_recv().is_err(), "asked for more");
    asked.sort();
    asked
}

const OF_SUBNET: &str = "fieldSelector=spec.subnet%3Ds";

#[tokio::test(start_paused = true)]
async fn a_subnet_is_read_as_recent_as_the_watch_was_from_the_servers_cache() {
    let asked = asked(2, |_| 200).await;
    let recent = format!("/networkinterfaces?&{OF_SUBNET}&resourceVersion=20&resourceVersionMatch=NotOlderThan");
    // Of endpoints nothing was told: what is there now.
    assert_eq!(asked, [format!("/networkendpoints?&{OF_SUBNET}"), recent]);
}

#[tokio::test(start_paused = true)]
async fn a_server_whose_cache_is_behind_is_asked_for_what_is_there_now() {
    let asked = asked(3, |query| if query.contains("NotOlderThan") { 504 } else { 200 }).await;
    assert_eq!(asked[1], format!("/networkinterfaces?&{OF_SUBNET}"));
}
