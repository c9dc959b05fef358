//! Listeners: the webhook over TLS, health and metrics without.

mod paced;

use crate::run::Metrics;
use crate::state::State;
use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use paced::{Paced, Requests};
use rustls::ServerConfig;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt as _;

/// Connections at once.
const CONNECTIONS: usize = 256;
/// A handshake, or the head of a request, that takes longer is cut off.
const PATIENCE: Duration = Duration::from_secs(5);
/// A request that takes longer, from its head to the answer, is answered with 408: API servers wait for less.
const WHOLE: Duration = Duration::from_secs(15);
/// A connection may be silent for so long between two requests, where clients may ask again what failed.
pub const IDLE: Duration = Duration::from_secs(5);
/// The same where they may not: API servers keep a connection for 90 s (Go's `IdleConnTimeout`, as client-go sets it), and a
/// question that meets its end fails.
pub const IDLE_OF_API_SERVERS: Duration = Duration::from_secs(120);
/// How long requests that are being answered may take at the end.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// `address:port`, or `:port` for all addresses.
///
/// # Errors
/// What is wrong with the text.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    match text.strip_prefix(':') {
        Some(port) => port.parse().map(|port| SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))),
        None => return text.parse().map_err(|_| format!("{text} is not ADDRESS:PORT or :PORT")),
    }
    .map_err(|_| format!("{text} has no port from 0 to 65535"))
}

/// Like [`address`]; `0` is none.
///
/// # Errors
/// What is wrong with the text.
pub fn optional_address(text: &str) -> Result<Option<SocketAddr>, String> {
    if text == "0" { Ok(None) } else { address(text).map(Some) }
}

/// Answers requests until `stop` says so or its sender is gone. With `tls` over TLS; HTTP/2 only with `http2`. A connection
/// that is silent for `idle` between two requests is ended.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    tls: Option<Arc<ServerConfig>>,
    http2: bool,
    idle: Duration,
    mut stop: watch::Receiver<bool>,
) {
    let acceptor = tls.map(TlsAcceptor::from);
    let router = bounded(router);
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    while !*stop.borrow_and_update() {
        let accepted = tokio::select! {
            gone = stop.changed() => if gone.is_err() { break } else { continue },
            Some(_) = connections.join_next() => continue,
            accepted = async {
                let place = Arc::clone(&places).acquire_owned().await;
                (listener.accept().await, place)
            } => accepted,
        };
        match accepted {
            (Ok((stream, _)), Ok(place)) => {
                let (router, acceptor, stop) = (router.clone(), acceptor.clone(), stop.clone());
                connections.spawn(async move {
                    match acceptor {
                        None => answer(stream, router, http2, idle, stop).await,
                        Some(acceptor) => match timeout(PATIENCE, acceptor.accept(stream)).await {
                            Ok(Ok(stream)) => answer(stream, router, http2, idle, stop).await,
                            Ok(Err(error)) => tracing::debug!(%error, "TLS handshake"),
                            Err(_) => tracing::debug!("a TLS handshake did not end"),
                        },
                    }
                    drop(place);
                });
            }
            (Err(error), _) => {
                // Out of descriptors, most likely; some will be free again.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            (_, Err(_)) => break,
        }
    }
    drop(listener);
    let _ = timeout(LAST_ANSWERS, async { while connections.join_next().await.is_some() {} }).await;
}

/// With what every listener's requests are held to.
fn bounded(router: Router) -> Router {
    router.layer(from_fn(in_time))
}

/// Ends what is not answered in time: a body that comes slowly would keep its connection's place for ever.
async fn in_time(request: Request, next: Next) -> Response {
    timeout(WHOLE, next.run(request)).await.unwrap_or_else(|_| StatusCode::REQUEST_TIMEOUT.into_response())
}

async fn answer(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    router: Router,
    http2: bool,
    idle: Duration,
    mut stop: watch::Receiver<bool>,
) {
    let requests = Arc::new(Requests::default());
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(Some(Duration::from_secs(30)));
    builder.http1().timer(TokioTimer::new());
    // Streams of HTTP/2 are no row of requests: to their stream one is always being answered.
    let _answering = if http2 {
        builder.http1().header_read_timeout(idle);
        Some(requests.begin())
    } else {
        builder = builder.http1_only();
        builder.http1().header_read_timeout(None);
        None
    };
    let stream = Paced::new(stream, Arc::clone(&requests), PATIENCE, idle);
    let service = tower::service_fn(move |request: Request<Incoming>| {
        let (answering, answer) = (requests.begin(), router.clone().oneshot(request));
        async move {
            let answer = answer.await;
            drop(answering);
            answer
        }
    });
    let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    let mut connection = std::pin::pin!(connection);
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(error, "connection");
                }
                return;
            }
            gone = stop.changed() => {
                connection.as_mut().graceful_shutdown();
                if gone.is_err() || *stop.borrow() {
                    let _ = timeout(LAST_ANSWERS, connection.as_mut()).await;
                    return;
                }
            }
        }
    }
}

/// `/healthz`: it runs; `/readyz`: it has read all objects and `ready` says so too.
pub fn health(state: Arc<State>, ready: impl Fn() -> Result<(), String> + Clone + Send + Sync + 'static) -> Router {
    Router::new().route("/healthz", get(|| async { "ok\n" })).route(
        "/readyz",
        get(move || async move {
            let unsynced = state.unsynced().into_iter().map(|(kind, why)| match why {
                Some(why) => format!("{kind} ({why})"),
                None => kind.to_string(),
            });
            let unsynced: Vec<_> = unsynced.collect();
            if !unsynced.is_empty() {
                return (StatusCode::SERVICE_UNAVAILABLE, format!("not read yet: {}\n", unsynced.join(", ")));
            }
            match ready() {
                Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
                Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
            }
        }),
    )
}

/// `/metrics` in OpenMetrics. `look` sets what is known at the moment of a scrape.
pub fn metrics(metrics: Metrics, look: impl Fn(&Metrics) + Clone + Send + Sync + 'static) -> Router {
    const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Router::new().route(
        "/metrics",
        get(move || async move {
            look(&metrics);
            match metrics.text() {
                Ok(text) => (StatusCode::OK, [(axum::http::header::CONTENT_TYPE, TYPE)], text),
                Err(error) => (
                    StatusCode::INTERNAL_SERVER_ERROR,
                    [(axum::http::header::CONTENT_TYPE, "text/plain")],
                    error.to_string(),
                ),
            }
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_end_is_answered_in_time() {
        use axum::body::{Body, Bytes};
        use tower::ServiceExt as _;
        let router = Router::new().route("/", axum::routing::post(|_: Bytes| async {}));
        let router = bounded(router);
        let ask = |body| router.clone().oneshot(Request::post("/").body(body).unwrap());
        assert_eq!(ask(Body::from("whole")).await.unwrap().status(), StatusCode::OK);
        let start = tokio::time::Instant::now();
        let slow = futures::stream::iter([Ok::<_, std::io::Error>("half")]);
        let slow = futures::StreamExt::chain(slow, futures::stream::pending());
        assert_eq!(ask(Body::from_stream(slow)).await.unwrap().status(), StatusCode::REQUEST_TIMEOUT);
        assert_eq!(start.elapsed(), WHOLE);
    }

    /// What a sender that sends a byte a second, from `begun` on, is answered until its connection ends.
    async fn dribbled(begun: &'static str, rest: char) -> String {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, split};
        let router = Router::new()
            .route("/read", axum::routing::post(|_: axum::body::Bytes| async {}))
            .route("/metrics", get(|| async { "numbers" }));
        let (here, there) = tokio::io::duplex(1024);
        let (_stop, stopped) = watch::channel(false);
        let connection = tokio::spawn(answer(there, bounded(router), false, IDLE, stopped));
        let (mut read, mut write) = split(here);
        let sender = tokio::spawn(async move {
            write.write_all(begun.as_bytes()).await.unwrap();
            while write.write_all(rest.to_string().as_bytes()).await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        let mut said = String::new();
        timeout(WHOLE + PATIENCE, read.read_to_string(&mut said)).await.unwrap().unwrap();
        connection.await.unwrap();
        sender.abort();
        said
    }

    #[tokio::test(start_paused = true)]
    async fn a_sender_that_dribbles_is_cut_off_wherever_it_does() {
        let start = tokio::time::Instant::now();
        dribbled("POST /read HTTP/1.1\r\nx: ", 'x').await;
        assert!(start.elapsed() <= PATIENCE, "{:?}", start.elapsed());
        let said = dribbled("POST /read HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n", 'x').await;
        assert!(said.starts_with("HTTP/1.1 408 "), "{said}");
        // Nobody reads what is sent with a question that has no body.
        let said = dribbled("GET /metrics HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n", 'x').await;
        assert!(said.starts_with("HTTP/1.1 200 ") && said.ends_with("numbers"), "{said}");
    }

    /// How many requests a client gets answered on one connection that asks again after each pause, and for how long the
    /// connection is kept in the end.
    async fn asked(pauses: &[Duration], idle: Duration) -> (usize, Duration) {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let router = Router::new().route("/", axum::routing::post(|body: axum::body::Bytes| async move { body }));
        let (mut here, there) = tokio::io::duplex(1024);
        let (_stop, stopped) = watch::channel(false);
        tokio::spawn(answer(there, bounded(router), false, idle, stopped));
        let (mut answered, mut last) = (0, tokio::time::Instant::now());
        for pause in [Duration::ZERO].iter().chain(pauses) {
            tokio::time::sleep(*pause).await;
            // In two parts, as over a network.
            let Ok(()) = here.write_all(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-le").await else { break };
            tokio::time::sleep(Duration::from_secs(1)).await;
            here.write_all(b"ngth: 1\r\n\r\nz").await.unwrap();
            let mut said = Vec::new();
            while !said.ends_with(b"\r\n\r\nz") && here.read_buf(&mut said).await.unwrap() > 0 {}
            assert!(said.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&said));
            (answered, last) = (answered + 1, tokio::time::Instant::now());
        }
        assert_eq!(timeout(2 * idle, here.read_to_end(&mut Vec::new())).await.unwrap().unwrap(), 0);
        (answered, last.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_outlasts_the_pauses_that_its_clients_make() {
        let pauses = [4, 89, 6, 119].map(Duration::from_secs);
        assert_eq!(asked(&pauses, IDLE_OF_API_SERVERS).await, (5, IDLE_OF_API_SERVERS));
        assert_eq!(asked(&pauses[..1], IDLE).await, (2, IDLE));
        assert_eq!(asked(&pauses[..2], IDLE).await.0, 2, "the third came too late");
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_has_begun_has_its_time_whatever_the_pauses_are() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        for (begun, waits) in [("", 0), ("GET /", 0), ("GET / HTTP/1.1\r\nhost: x\r\n\r\n", 30)] {
            let router = Router::new().route("/", get(|| async { "z" }));
            let (mut here, there) = tokio::io::duplex(1024);
            let (_stop, stopped) = watch::channel(false);
            tokio::spawn(answer(there, bounded(router), false, IDLE_OF_API_SERVERS, stopped));
            here.write_all(begun.as_bytes()).await.unwrap();
            let mut said = Vec::new();
            if waits > 0 {
                while !said.ends_with(b"\r\n\r\nz") && here.read_buf(&mut said).await.unwrap() > 0 {}
                tokio::time::sleep(Duration::from_secs(waits)).await;
                here.write_all(b"GET /").await.unwrap();
            }
            let start = tokio::time::Instant::now();
            here.read_to_end(&mut said).await.unwrap();
            assert_eq!(start.elapsed(), PATIENCE, "{begun:?}");
        }
    }

    #[tokio::test]
    async fn what_is_not_read_yet_is_named_with_why() {
        use axum::body::{Body, to_bytes};
        use tower::ServiceExt as _;
        let state = Arc::new(State::new([crate::view::Kind::Vpc, crate::view::Kind::Pod]));
        state.failed(crate::view::Kind::Vpc, "connection refused");
        let request = Request::get("/readyz").body(Body::empty()).unwrap();
        let said = health(state, || Ok(())).oneshot(request).await.unwrap();
        assert_eq!(said.status(), StatusCode::SERVICE_UNAVAILABLE);
        let text = to_bytes(said.into_body(), 1024).await.unwrap();
        assert_eq!(text, "not read yet: Pod, Vpc (connection refused)\n");
    }

    #[test]
    fn addresses_are_read_as_the_go_project_writes_them() {
        assert_eq!(address(":8081").unwrap(), "[::]:8081".parse().unwrap());
        assert_eq!(address("127.0.0.1:9443").unwrap(), "127.0.0.1:9443".parse().unwrap());
        assert_eq!(optional_address("0").unwrap(), None);
        for bad in ["", ":", ":70000", "localhost:1", "1.2.3.4"] {
            assert!(address(bad).is_err(), "{bad}");
        }
    }
}
