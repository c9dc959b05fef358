//! One probe.

use super::place::{PlaceError, Places};
use super::registry::Probe;
use super::{Outcome, grpc, http, tls};
use crate::net::Namespace;
use ::http::{HeaderValue, Request, Response};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use juneau_api::probes::{Action, Port};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;

/// How long a handler may take: a kubelet sets no limit, but it will not ask twice.
const HANDLER: Duration = Duration::from_secs(3600);

/// Longest head of an answer, in bytes.
const HEAD: usize = 64 << 10;

/// How a Pod is reached.
pub(super) struct Way<'a> {
    places: &'a Places,
    namespace: Arc<Namespace>,
    pub(super) address: IpAddr,
}

/// What is spoken on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speech {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 without asking.
    Http2,
    /// TLS, and what is agreed upon in it.
    Tls,
    /// TLS and HTTP/2.
    TlsHttp2,
}

/// The half of a connection that moves bytes. It ends with the probe.
struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A connection on which one request is sent.
pub(super) struct Connection {
    sender: Sender,
    _driver: Driver,
}

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Connection {
    async fn open<S>(stream: S, http2: bool) -> hyper::Result<Self>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let io = TokioIo::new(stream);
        if http2 {
            let (sender, driver) = http2::handshake(TokioExecutor::new(), io).await?;
            let driver = Driver(tokio::spawn(async move { drop(driver.await) }));
            return Ok(Self { sender: Sender::Http2(sender), _driver: driver });
        }
        let (sender, driver) = http1::Builder::new().max_buf_size(HEAD).handshake(io).await?;
        let driver = Driver(tokio::spawn(async move { drop(driver.await) }));
        Ok(Self { sender: Sender::Http1(sender), _driver: driver })
    }

    pub(super) const fn is_http2(&self) -> bool {
        matches!(self.sender, Sender::Http2(_))
    }

    pub(super) async fn send(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        match &mut self.sender {
            Sender::Http1(sender) => sender.send_request(request).await,
            Sender::Http2(sender) => sender.send_request(request).await,
        }
    }
}

impl Way<'_> {
    /// Connects to a port of the Pod.
    async fn connect(&self, port: u16) -> Result<tokio::net::TcpStream, Outcome> {
        let to = SocketAddr::new(self.address, port);
        self.places.connect(&self.namespace, to).await.map_err(|error| match error {
            PlaceError::Gone(reason) => Outcome::Gone(reason),
            error => Outcome::failed(format!("{to}: {error}")),
        })
    }

    /// Connects and agrees upon what is spoken.
    pub(super) async fn open(&self, port: u16, speech: Speech) -> Result<Connection, Outcome> {
        let stream = self.connect(port).await?;
        let failed = |error: hyper::Error| Outcome::failed(describe(&error));
        match speech {
            Speech::Http1 => Connection::open(stream, false).await.map_err(failed),
            Speech::Http2 => Connection::open(stream, true).await.map_err(failed),
            Speech::Tls | Speech::TlsHttp2 => {
                let offered: &[&[u8]] = if speech == Speech::Tls { &[b"h2", b"http/1.1"] } else { &[b"h2"] };
                let stream = tls::connect(stream, self.address, offered).await.map_err(Outcome::Failed)?;
                let http2 = speech == Speech::TlsHttp2 || tls::is_http2(&stream);
                Connection::open(stream, http2).await.map_err(failed)
            }
        }
    }
}

/// An error with what it comes from, which is what people look for.
pub(super) fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

/// Executes a probe within its time. `agent` is what the kubelet calls itself.
pub(super) async fn execute(places: &Places, probe: &Probe, agent: Option<&HeaderValue>) -> Outcome {
    let limit = match probe.config.timeout_seconds {
        _ if probe.config.purpose.is_handler() => HANDLER,
        seconds => Duration::from_secs(u64::from(seconds.max(1))),
    };
    let whole = async {
        let _slot = probe.pod.slots.acquire().await;
        attempt(places, probe, agent).await
    };
    tokio::time::timeout(limit, whole).await.unwrap_or(Outcome::Late)
}

async fn attempt(places: &Places, probe: &Probe, agent: Option<&HeaderValue>) -> Outcome {
    let action = match &probe.action {
        Ok(action) => action,
        Err(error) => return Outcome::failed(format!("the probe cannot be understood: {error}")),
    };
    let port = match action.port() {
        Port::Number(port) if *port != 0 => *port,
        Port::Number(_) => return Outcome::failed("port 0 is none"),
        Port::Name(name) => {
            return Outcome::failed(format!("container {} has no port {name:?}", probe.config.container));
        }
    };
    let target = &probe.pod.target;
    let namespace = match places.find(target.ifindex).await {
        Ok(namespace) => namespace,
        Err(PlaceError::Gone(reason)) => return Outcome::Gone(reason),
        Err(error) => return Outcome::failed(error),
    };
    let way = Way { places, namespace, address: target.address.into() };
    let done = match action {
        Action::TcpSocket(_) => way.connect(port).await.map(|_| Outcome::Success),
        Action::HttpGet(get) => http::get(&way, get, port, agent).await,
        Action::Grpc(grpc) => grpc::check(&way, grpc, port, agent).await,
    };
    done.unwrap_or_else(|outcome| outcome)
}
