//! Where the kubelet asks.

use super::Outcome;
use super::execute::execute;
use super::place::Places;
use super::registry::Registry;
use crate::net::NetError;
use crate::options::Options;
use http::header::USER_AGENT;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use juneau_api::probes::token;
use juneau_core::model::Problem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Connections at the same time; more wait to be accepted. More than the Pods of a node can have probes.
const CONNECTIONS: usize = 4096;
/// A head that is not there by then is not waited for.
const HEAD_TIME: Duration = Duration::from_secs(5);
/// How long a question waits for an agent that has just begun to know its Pods.
const BEGINNING: Duration = Duration::from_secs(10);
/// Until the address is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Longest reason that is told, in characters.
const REASON: usize = 300;
/// What a kubelet calls itself begins with this.
const KUBELET: &str = "kube-";

/// The answer is that there is none: a kubelet takes any for a handler's success.
#[derive(Debug, thiserror::Error)]
#[error("the handler failed")]
struct NoAnswer;

/// Serves until the task is aborted, if the options say where. The calling thread must be in the node's network
/// namespace, as the runtime's others.
///
/// # Errors
/// [`NetError`] when there is no netlink socket to be had.
pub fn serve(options: &Options, registry: Arc<Registry>) -> Result<Option<JoinHandle<()>>, NetError> {
    let Some(address) = options.probe_bind_address.0 else { return Ok(None) };
    let server = Arc::new(Server { places: Places::new(&options.netns_dir)?, registry });
    Ok(Some(tokio::spawn(server.run(address))))
}

struct Server {
    places: Places,
    registry: Arc<Registry>,
}

impl Server {
    async fn run(self: Arc<Self>, address: SocketAddr) {
        let listener = loop {
            match TcpListener::bind(address).await {
                Ok(listener) => break listener,
                Err(error) => {
                    let remedy = "end the program that has it, or bring the loopback device up; until then probes of Pods \
                                  outside Vpc default fail on this node";
                    let message = format!("probes cannot be asked for there: {error}");
                    self.registry.tell(Some(Problem::new(format!("address {address}"), message, remedy)));
                    sleep(RETRY).await;
                }
            }
        };
        self.registry.tell(None);
        let slots = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
            match listener.accept().await {
                // With `route_localnet` a neighbour of the node reaches its loopback addresses as well.
                Ok((_, peer)) if !peer.ip().is_loopback() => {}
                Ok((stream, _)) => {
                    let server = Arc::clone(&self);
                    tokio::spawn(async move {
                        server.connection(stream).await;
                        drop(slot);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection for a probe");
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    async fn connection(&self, stream: TcpStream) {
        let service = service_fn(|request| self.answer(request));
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIME)
            .keep_alive(false)
            .max_buf_size(16 << 10)
            .serve_connection(TokioIo::new(stream), service);
        if let Err(error) = served.await {
            tracing::debug!(%error, "connection for a probe");
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, NoAnswer> {
        if request.method() != Method::GET {
            return Ok(response(StatusCode::METHOD_NOT_ALLOWED, "probes are asked for by GET"));
        }
        let Some(token) = token(request.uri().path()) else {
            return Ok(response(StatusCode::NOT_FOUND, "there is nothing here but /v1/probes/TOKEN"));
        };
        let probe = match timeout(BEGINNING, self.registry.find(token)).await {
            Ok(Some(probe)) => probe,
            Ok(None) => return Ok(response(StatusCode::NOT_FOUND, "no Pod of this node has such a probe")),
            Err(_) => return Ok(response(StatusCode::SERVICE_UNAVAILABLE, "the agent does not know its Pods yet")),
        };
        let agent = request.headers().get(USER_AGENT).filter(|agent| is_kubelet(agent));
        let outcome = execute(&self.places, &probe, agent).await;
        let (pod, purpose) = (&probe.pod.target.pod, probe.config.purpose.field());
        tracing::debug!(%pod, container = %probe.config.container, purpose, ?outcome, "probe");
        if probe.config.purpose.is_handler() {
            return match outcome {
                // Whatever the status.
                Outcome::Success | Outcome::Status(_) => Ok(response(StatusCode::OK, "ok")),
                _ => Err(NoAnswer),
            };
        }
        Ok(match outcome {
            Outcome::Success => response(StatusCode::OK, "ok"),
            Outcome::Status(status) => {
                let status = StatusCode::from_u16(status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
                response(status, &format!("the Pod answered with status {}", status.as_u16()))
            }
            Outcome::Failed(reason) => response(StatusCode::SERVICE_UNAVAILABLE, &reason),
            Outcome::Late => response(StatusCode::GATEWAY_TIMEOUT, "the Pod did not answer in time"),
            Outcome::Gone(reason) => response(StatusCode::GONE, &reason),
        })
    }
}

fn is_kubelet(agent: &HeaderValue) -> bool {
    agent.as_bytes().starts_with(KUBELET.as_bytes())
}

/// An answer, with a bounded reason in a line of plain text.
fn response(status: StatusCode, reason: &str) -> Response<Full<Bytes>> {
    let clean = reason.chars().map(|c| if c.is_control() { ' ' } else { c }).take(REASON);
    let text: String = clean.chain(['\n']).collect();
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;

    #[tokio::test]
    async fn reasons_are_bounded_and_are_one_line() {
        let response = response(StatusCode::OK, &format!("a\nb\u{1b}{}", "x".repeat(10_000)));
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert!(body.len() == REASON + 1 && body.starts_with(b"a b x"), "{body:?}");
    }
}
