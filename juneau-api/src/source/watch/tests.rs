//! Edge cases of the protocol, by a server that answers what it is told to.

use super::*;
use http::Response;
use serde_json::{Value, json};
use std::collections::VecDeque;
use tokio::sync::{Notify, mpsc};

/// An answer to a request for Nodes: a status and a body. Requests after the last one hang, as a quiet watch does.
type Answer = (u16, String);

fn node(name: &str, version: u32, addresses: Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "resourceVersion": version.to_string(), "managedFields": [{"manager": "kubelet"}]},
        "status": {"addresses": addresses},
    })
}

fn at(address: &str) -> Value {
    json!([{"type": "InternalIP", "address": address}])
}

fn list(version: u32, items: &[Value]) -> Answer {
    let list = json!({
        "apiVersion": "v1", "kind": "NodeList", "metadata": {"resourceVersion": version.to_string()}, "items": items,
    });
    (200, list.to_string())
}

fn events(events: &[(&str, Value)]) -> Answer {
    let line = |(kind, object): &(&str, Value)| format!("{}\n", json!({"type": kind, "object": object}));
    (200, events.iter().map(line).collect())
}

fn status(code: u16, reason: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
        "message": format!("because {reason}"), "reason": reason, "code": code,
    })
}

fn refusal(code: u16, reason: &str) -> Answer {
    (code, status(code, reason).to_string())
}

/// A source, and what it asked for of Nodes.
struct Run {
    source: WatchSource,
    changed: Arc<Notify>,
    requests: mpsc::UnboundedReceiver<String>,
    answers: Arc<Mutex<VecDeque<Answer>>>,
}

impl Run {
    fn start(answers: impl IntoIterator<Item = Answer>) -> Self {
        let answers = Arc::new(Mutex::new(VecDeque::from_iter(answers)));
        let left = Arc::clone(&answers);
        let (sender, requests) = mpsc::unbounded_channel();
        let service = tower::service_fn(move |request: Request<Body>| {
            let uri = request.uri().to_string();
            let answer = uri.starts_with("/api/v1/nodes?").then(|| {
                sender.send(uri).unwrap();
                answers.lock().unwrap().pop_front()
            });
            async move {
                match answer.flatten() {
                    Some((code, body)) => Ok::<_, kube::Error>(
                        Response::builder().status(code).body(Body::from(body.into_bytes())).unwrap(),
                    ),
                    None => std::future::pending().await,
                }
            }
        });
        let changed = Arc::new(Notify::new());
        let tell = Arc::clone(&changed);
        let client = Client::new(service, "default");
        let source = WatchSource::start(&client, "node-1", Duration::from_secs(60), move || tell.notify_one());
        Self { source, changed, requests, answers: left }
    }

    /// Whether every answer was given.
    fn answered(&self) -> bool {
        self.answers.lock().unwrap().is_empty()
    }

    /// Waits for nodes with their addresses, and for problems by object.
    async fn wait(&self, nodes: &[(&str, &str)], problems: &[&str]) -> Snapshot {
        loop {
            let snapshot = self.source.read();
            let found: Vec<_> = snapshot.view.nodes.iter().map(|(n, i)| (&**n, &*i.object.internal_ips[0])).collect();
            let wrong: Vec<_> = snapshot.problems.iter().map(|problem| &*problem.object).collect();
            if found == nodes && wrong == problems {
                return snapshot;
            }
            // Time stands still but for pauses, so that this is long after everything that will ever happen.
            let patience = tokio::time::timeout(Duration::from_secs(3600), self.changed.notified()).await;
            assert!(patience.is_ok(), "found {found:?} {wrong:?}, wanted {nodes:?} {problems:?}");
        }
    }

    async fn request(&mut self) -> String {
        self.requests.recv().await.unwrap()
    }
}

fn has(request: &str, parameter: &str) -> bool {
    request.split(['?', '&']).any(|part| part == parameter)
}

#[tokio::test(start_paused = true)]
async fn a_server_that_streams_no_lists_is_asked_for_one() {
    let mut run = Run::start([
        refusal(422, "Invalid"),
        list(5, &[node("a", 3, at("192.0.2.1")), node("b", 4, at("192.0.2.2"))]),
        // The connection ends, and is taken up where it was.
        events(&[("MODIFIED", node("a", 6, at("192.0.2.9"))), ("BOOKMARK", node("", 8, json!([])))]),
        events(&[("DELETED", node("b", 9, at("192.0.2.2")))]),
    ]);
    run.wait(&[("a", "192.0.2.9")], &[]).await;
    let first = run.request().await;
    assert!(has(&first, "sendInitialEvents=true") && has(&first, "allowWatchBookmarks=true"), "{first}");
    let second = run.request().await;
    assert!(!has(&second, "watch=true") && has(&second, "resourceVersion=0"), "from the cache: {second}");
    for version in [5, 8, 9] {
        let watch = run.request().await;
        assert!(has(&watch, "watch=true") && has(&watch, &format!("resourceVersion={version}")), "{watch}");
        assert!(!has(&watch, "sendInitialEvents=true"), "{watch}");
    }
    // Of the other kinds nothing is known.
    assert_eq!(run.source.read().unknown, Kind::ALL.len() - 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_whose_streamed_list_fails_is_asked_for_one() {
    let mut run = Run::start([
        events(&[("ADDED", node("a", 3, at("192.0.2.9"))), ("ERROR", status(500, "InternalError"))]),
        list(5, &[node("a", 4, at("192.0.2.1"))]),
    ]);
    run.wait(&[("a", "192.0.2.1")], &[]).await;
    assert!(has(&run.request().await, "sendInitialEvents=true"));
    assert!(!has(&run.request().await, "watch=true"));
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_streamed_ends_with_its_bookmark() {
    let mut end = node("", 7, json!([]));
    end["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    let mut run = Run::start([
        events(&[("ADDED", node("a", 3, at("192.0.2.1"))), ("BOOKMARK", end)]),
        events(&[("ADDED", node("b", 8, at("192.0.2.2")))]),
    ]);
    let snapshot = run.wait(&[("a", "192.0.2.1"), ("b", "192.0.2.2")], &[]).await;
    assert_eq!(snapshot.unknown, Kind::ALL.len() - 1);
    assert!(has(&run.request().await, "sendInitialEvents=true"));
    let second = run.request().await;
    assert!(has(&second, "resourceVersion=7") && !has(&second, "sendInitialEvents=true"), "{second}");
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_gone_means_a_new_list_after_a_pause() {
    let mut run = Run::start([
        refusal(400, "BadRequest"),
        list(5, &[node("a", 3, at("192.0.2.1")), node("b", 4, at("192.0.2.2"))]),
        events(&[("ERROR", status(410, "Expired"))]),
        list(50, &[node("a", 40, at("192.0.2.7"))]),
    ]);
    run.wait(&[("a", "192.0.2.1"), ("b", "192.0.2.2")], &[]).await;
    for _ in 0..3 {
        run.request().await;
    }
    let gone = Instant::now();
    run.wait(&[("a", "192.0.2.7")], &[]).await;
    assert!(gone.elapsed() >= Duration::from_millis(500), "{:?}", gone.elapsed());
    assert!(!has(&run.request().await, "watch=true"));
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_is_well_as_soon_as_it_has_begun() {
    let nodes = [("a", "192.0.2.1")];
    let mut run = Run::start([
        refusal(422, "Invalid"),
        list(5, &[node("a", 3, at("192.0.2.1"))]),
        refusal(500, "InternalError"),
        events(&[]),
    ]);
    run.wait(&nodes, &["watch of Node"]).await;
    // Two requests for the list, the watch that is refused, and the one that begins.
    for _ in 0..4 {
        run.request().await;
    }
    let begun = Instant::now();
    run.wait(&nodes, &[]).await;
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_begins_and_breaks_stays_a_problem() {
    let broken = || events(&[("ERROR", status(500, "InternalError"))]);
    let mut run =
        Run::start([refusal(422, "Invalid"), list(5, &[node("a", 3, at("192.0.2.1"))]), broken(), broken(), broken()]);
    let nodes = [("a", "192.0.2.1")];
    run.wait(&nodes, &["watch of Node"]).await;
    // All five are answered; the sixth hangs, and so has not begun.
    while run.requests.recv().await.is_some_and(|_| !run.answered()) {}
    let begun = Instant::now();
    run.wait(&nodes, &[]).await;
    assert!(begun.elapsed() > Duration::from_secs(60), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_object_that_does_not_decode_stops_nobody() {
    let run = Run::start([
        refusal(422, "Invalid"),
        list(5, &[node("a", 2, at("192.0.2.1")), node("b", 3, json!("none")), node("c", 4, at("192.0.2.3"))]),
        events(&[("MODIFIED", node("a", 6, json!({"not": "a list"}))), ("ADDED", node("d", 7, at("192.0.2.4")))]),
    ]);
    let good = [("a", "192.0.2.1"), ("c", "192.0.2.3"), ("d", "192.0.2.4")];
    let snapshot = run.wait(&good, &["Node/a", "Node/b"]).await;
    let kept: Vec<bool> = snapshot.problems.iter().map(|p| p.message.ends_with("stays in force")).collect();
    assert_eq!(kept, [true, false], "{:?}", snapshot.problems);
    assert_eq!(snapshot.unknown, Kind::ALL.len());
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_a_problem_until_it_is_over() {
    let run =
        Run::start([refusal(403, "Forbidden"), refusal(422, "Invalid"), list(5, &[node("a", 3, at("192.0.2.1"))])]);
    let snapshot = run.wait(&[], &["watch of Node"]).await;
    assert_eq!(snapshot.problems[0].remedy, "let the agent's account list and watch Node objects");
    run.wait(&[("a", "192.0.2.1")], &[]).await;
}
