//! An HTTP server of one page, on a Unix socket.

use super::{Sample, to_text};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// The media type of OpenMetrics.
const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Longest request head that is read, in bytes.
const HEAD_LIMIT: usize = 8192;
/// A client that does not finish its request in this time is cut off.
const REQUEST_TIME: Duration = Duration::from_secs(10);

/// Serves `listener` until the task is aborted. Each scrape asks for one sample.
pub fn serve(listener: UnixListener, scrapes: mpsc::Sender<oneshot::Sender<Sample>>) -> JoinHandle<()> {
    tokio::spawn(async move {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let scrapes = scrapes.clone();
                    tokio::spawn(async move {
                        match tokio::time::timeout(REQUEST_TIME, answer(stream, scrapes)).await {
                            Ok(Ok(())) => {}
                            Ok(Err(error)) => tracing::debug!(%error, "scrape"),
                            Err(_) => tracing::debug!("a scrape did not end"),
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a scrape");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    })
}

async fn answer(mut stream: UnixStream, scrapes: mpsc::Sender<oneshot::Sender<Sample>>) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        if head.len() > HEAD_LIMIT || stream.read_buf(&mut head).await? == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not an HTTP request"));
        }
    }
    let (status, body) = if head.starts_with(b"GET ") {
        let (reply, sample) = oneshot::channel();
        let asked = scrapes.send(reply).await;
        match (asked, sample.await) {
            (Ok(()), Ok(sample)) => ("200 OK", to_text(sample).map_err(io::Error::other)?),
            _ => ("503 Service Unavailable", "the agent is stopping\n".to_owned()),
        }
    } else {
        ("405 Method Not Allowed", "only GET\n".to_owned())
    };
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {TYPE}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ask(text: &str) -> String {
        let (mut client, server) = UnixStream::pair().unwrap();
        let (scrapes, mut queue) = mpsc::channel::<oneshot::Sender<Sample>>(1);
        tokio::spawn(async move {
            while let Some(reply) = queue.recv().await {
                reply.send(Sample::default()).unwrap();
            }
        });
        let served = tokio::spawn(answer(server, scrapes));
        client.write_all(text.as_bytes()).await.unwrap();
        client.shutdown().await.unwrap();
        let mut said = String::new();
        client.read_to_string(&mut said).await.unwrap();
        let _ = served.await.unwrap();
        said
    }

    #[tokio::test]
    async fn a_scrape_is_one_http_answer() {
        let said = ask("GET /metrics HTTP/1.1\r\nHost: node\r\n\r\n").await;
        assert!(said.starts_with("HTTP/1.1 200 OK\r\n") && said.contains(TYPE), "{said}");
        let (_, body) = said.split_once("\r\n\r\n").unwrap();
        assert!(body.contains("juneau_ready 0\n") && body.ends_with("# EOF\n"));
        assert!(ask("POST / HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 405"));
        assert_eq!(ask("nonsense").await, "");
    }
}
