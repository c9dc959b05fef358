//! An API server that is not well: a proxy in front of a real one, which does to answers what it is told.

use super::client;
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use futures::{Stream, StreamExt as _};
use http::StatusCode;
use http::header::{AUTHORIZATION, HOST};
use serde_json::{Value, json};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Nothing,
    /// Every answer comes so much later.
    Slow(Duration),
    /// Every answer is this status, with `Retry-After` if there are seconds.
    Refuse(u16, Option<u64>),
    /// Watches that are open break off, and new ones after so long.
    Cut(Duration),
    /// Watches are answered 410 in the head.
    GoneInHead,
    /// Watches that are open, and new ones, say 410 in the stream.
    GoneInStream,
    /// Nothing is answered, and what is open then stays without a word for ever.
    Silent,
}

/// One request.
#[derive(Debug, Clone)]
pub struct Asked {
    pub at: Instant,
    pub method: String,
    pub path: String,
    pub is_watch: bool,
}

#[derive(Clone)]
struct Shared {
    server: kube::Client,
    fault: watch::Receiver<Fault>,
    asked: Arc<Mutex<Vec<Asked>>>,
}

pub struct Proxy {
    pub kubeconfig: PathBuf,
    fault: watch::Sender<Fault>,
    asked: Arc<Mutex<Vec<Asked>>>,
    server: JoinHandle<()>,
    _dir: tempfile::TempDir,
}

impl Proxy {
    /// One that speaks to the server as the kubeconfig says.
    pub async fn start(kubeconfig: &Path) -> Self {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let mut told: Value = serde_json::from_str(&fs::read_to_string(kubeconfig).unwrap()).unwrap();
        told["clusters"][0]["cluster"] = json!({"server": format!("http://{}", listener.local_addr().unwrap())});
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubeconfig");
        fs::write(&path, told.to_string()).unwrap();
        let (fault, seen) = watch::channel(Fault::Nothing);
        let asked = Arc::<Mutex<Vec<Asked>>>::default();
        let shared = Shared { server: client(kubeconfig).await, fault: seen, asked: Arc::clone(&asked) };
        let router = Router::new().fallback(answer).with_state(shared);
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { kubeconfig: path, fault, asked, server, _dir: dir }
    }

    pub fn set(&self, fault: Fault) {
        self.fault.send_replace(fault);
    }

    /// What was asked since then.
    pub fn since(&self, then: Instant) -> Vec<Asked> {
        self.asked.lock().unwrap().iter().filter(|asked| asked.at >= then).cloned().collect()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn answer(State(shared): State<Shared>, request: Request) -> Response {
    let (mut head, body) = request.into_parts();
    let is_watch = head.uri.query().is_some_and(|query| query.contains("watch=true"));
    let (method, path) = (head.method.to_string(), head.uri.path().to_owned());
    shared.asked.lock().unwrap().push(Asked { at: Instant::now(), method, path, is_watch });
    let fault = *shared.fault.borrow();
    match fault {
        Fault::Slow(pause) => tokio::time::sleep(pause).await,
        Fault::Refuse(code, seconds) => return refusal(code, seconds),
        Fault::GoneInHead if is_watch => return refusal(410, None),
        Fault::GoneInStream if is_watch => return Body::from(gone()).into_response(),
        Fault::Cut(_) if is_watch => {}
        Fault::Silent => std::future::pending().await,
        _ => {}
    }
    head.headers.remove(AUTHORIZATION);
    head.headers.remove(HOST);
    let body = to_bytes(body, 1 << 24).await.unwrap().to_vec();
    match shared.server.send(http::Request::from_parts(head, kube::client::Body::from(body))).await {
        Ok(answer) if is_watch => {
            answer.map(|body| Body::from_stream(frames(Body::new(body).into_data_stream(), shared.fault)))
        }
        Ok(answer) => answer.map(Body::new),
        Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    }
}

fn refusal(code: u16, seconds: Option<u64>) -> Response {
    let mut answer = (StatusCode::from_u16(code).unwrap(), "not now").into_response();
    if let Some(seconds) = seconds {
        answer.headers_mut().insert(http::header::RETRY_AFTER, seconds.into());
    }
    answer
}

fn gone() -> Bytes {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Expired",
        "message": "too old resource version", "code": 410});
    format!("{}\n", json!({"type": "ERROR", "object": status})).into()
}

/// A watch's stream, as long as nothing is wrong with it.
fn frames(
    stream: impl Stream<Item = Result<Bytes, axum::Error>> + Send + 'static,
    fault: watch::Receiver<Fault>,
) -> impl Stream<Item = Result<Bytes, io::Error>> + Send {
    futures::stream::unfold(Some((Box::pin(stream), fault)), |open| async move {
        let (mut stream, mut fault) = open?;
        loop {
            let now = *fault.borrow_and_update();
            let cut = async {
                match now {
                    Fault::Cut(after) => tokio::time::sleep(after).await,
                    _ => std::future::pending().await,
                }
            };
            match now {
                Fault::Silent => return std::future::pending().await,
                Fault::GoneInStream => return Some((Ok(gone()), None)),
                _ => {}
            }
            tokio::select! {
                frame = stream.next() => {
                    let frame = frame?.map_err(io::Error::other);
                    return Some((frame, Some((stream, fault))));
                }
                () = cut => return Some((Err(io::Error::other("cut")), None)),
                _ = fault.changed() => {}
            }
        }
    })
}
