use super::*;
use axum::body::Body;
use axum::routing::get;
use serde_json::{Value, json};
use std::convert::Infallible;
use tower::ServiceExt as _;

/// An API server that knows tokens `NAME-...`, and lets `reader` read; the paths that it was asked.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<Vec<String>>>);

impl Server {
    fn router(&self) -> Router {
        let server = self.clone();
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let server = server.clone();
            async move {
                let path = request.uri().path().to_owned();
                let bytes = request.into_body().collect_bytes().await.unwrap();
                let asked: Value = serde_json::from_slice(&bytes).unwrap();
                server.0.lock().unwrap().push(path.clone());
                let (status, answer) = if path.ends_with("/tokenreviews") {
                    let token = asked["spec"]["token"].as_str().unwrap();
                    match token.split_once('-') {
                        Some(("silent", _)) => std::future::pending().await,
                        Some(("broken", _)) => {
                            (500, json!({"kind": "Status", "status": "Failure", "message": "no", "code": 500}))
                        }
                        Some((name, _)) => {
                            let user = json!({"username": name, "uid": "u", "groups": ["g"], "extra": {"k": ["v"]}});
                            (201, json!({"spec": {}, "status": {"authenticated": true, "user": user}}))
                        }
                        None => (201, json!({"spec": {}, "status": {"authenticated": false, "error": "no"}})),
                    }
                } else {
                    assert_eq!(path, "/apis/authorization.k8s.io/v1/subjectaccessreviews");
                    let spec = &asked["spec"];
                    assert_eq!((&spec["uid"], &spec["groups"]), (&json!("u"), &json!(["g"])));
                    assert_eq!(spec["extra"], json!({"k": ["v"]}));
                    let wants = json!({"path": "/metrics", "verb": "get"});
                    let allowed = spec["user"] != "other" && spec["nonResourceAttributes"] == wants;
                    let denied = spec["user"] == "denied";
                    (201, json!({"spec": {}, "status": {"allowed": allowed, "denied": denied}}))
                };
                let body = kube::client::Body::from(answer.to_string().into_bytes());
                Ok::<_, Infallible>(http::Response::builder().status(status).body(body).unwrap())
            }
        });
        let metrics = Router::new().route("/metrics", get(|| async { "numbers" }));
        only_readers(metrics, kube::Client::new(service, "default"))
    }

    fn asked(&self) -> usize {
        std::mem::take(&mut *self.0.lock().unwrap()).len()
    }
}

async fn read(router: &Router, path: &str, authorization: &str) -> (u16, String) {
    let request = http::Request::get(path);
    let request = if authorization.is_empty() { request } else { request.header("authorization", authorization) };
    let response = router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let status = response.status().as_u16();
    assert_eq!(status == 401, response.headers().contains_key("www-authenticate"));
    let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn only_who_may_read_reads() {
    let server = Server::default();
    let router = server.router();
    assert_eq!(read(&router, "/metrics", "Bearer reader-1").await, (200, "numbers".to_owned()));
    assert_eq!(read(&router, "/metrics", "bearer  reader-1 ").await.0, 200);
    assert_eq!(server.asked(), 2, "a review of each kind");
    // Nobody is asked about these.
    let long = format!("Bearer reader-{}", "x".repeat(LONGEST));
    for none in ["", "Bearer", "Bearer ", "Basic reader-1", "reader-1", &long] {
        assert_eq!(read(&router, "/metrics", none).await.0, 401, "{none:.20}");
    }
    assert_eq!(server.asked(), 0);
    for (token, status) in [("stranger", 401), ("other-1", 403), ("denied-1", 403), ("broken-1", 503)] {
        let (said, text) = read(&router, "/metrics", &format!("Bearer {token}")).await;
        assert_eq!(said, status, "{token}");
        assert!(!text.contains("numbers") && !text.contains(token), "{text}");
    }
    // A right is one to a path, whether there is anything or not.
    assert_eq!(read(&router, "/other", "").await.0, 401);
    assert_eq!(read(&router, "/other", "Bearer reader-1").await.0, 403);
}

#[tokio::test(start_paused = true)]
async fn answers_are_kept_for_a_while_and_never_too_many() {
    let server = Server::default();
    let router = server.router();
    for (token, status, ends, questions) in
        [("reader-1", 200, YES, 2), ("other-1", 403, NO, 2), ("stranger", 401, NO, 1)]
    {
        let header = format!("Bearer {token}");
        assert_eq!(read(&router, "/metrics", &header).await.0, status);
        assert_eq!(server.asked(), questions);
        tokio::time::advance(ends - Duration::from_millis(1)).await;
        assert_eq!(read(&router, "/metrics", &header).await.0, status);
        assert_eq!(server.asked(), 0, "{token}");
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(read(&router, "/metrics", &header).await.0, status);
        assert_eq!(server.asked(), questions, "{token}");
    }
    // A failure is no answer.
    for _ in 0..2 {
        assert_eq!(read(&router, "/metrics", "Bearer broken-1").await.0, 503);
        assert_eq!(server.asked(), 1);
    }
    assert_eq!(read(&router, "/metrics", "Bearer reader-1").await.0, 200);
    for n in 0..2 * KEPT {
        // So that each ends after the one before.
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(read(&router, "/metrics", &format!("Bearer stranger{n}")).await.0, 401);
    }
    server.asked();
    // Who reads is not driven out by strangers.
    assert_eq!(read(&router, "/metrics", "Bearer reader-1").await.0, 200);
    assert_eq!(server.asked(), 0);
    assert_eq!(read(&router, "/metrics", "Bearer stranger0").await.0, 401);
    assert_eq!(server.asked(), 1, "it was forgotten");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_nothing_is_not_asked_by_everybody() {
    let server = Server::default();
    let router = server.router();
    let begun = Instant::now();
    let mut readers = tokio::task::JoinSet::new();
    for n in 0..20 {
        let router = router.clone();
        readers.spawn(async move { read(&router, "/metrics", &format!("Bearer silent-{n}")).await.0 });
    }
    assert_eq!(readers.join_all().await, [503; 20]);
    assert!(begun.elapsed() < PATIENCE + Duration::from_secs(1));
    assert!(server.asked() <= 2 * AT_ONCE);
    assert_eq!(read(&router, "/metrics", "Bearer reader-1").await.0, 200);
}
