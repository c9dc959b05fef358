//! Connections of HTTP/1.1 that are given up when nothing comes, for as long as it may take at that point.
//!
//! hyper has one time for both: for the head of a request, and for the pause before it. The two differ. A head that has
//! begun and does not end is somebody's fault. A pause is nobody's, and a server that ends the connection in it may do so
//! just when the client sends: a question that is no GET is not asked again then, and fails.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// The requests of a connection.
#[derive(Debug, Default)]
pub(super) struct Requests {
    begun: AtomicU64,
    ended: AtomicU64,
}

/// A request that is being answered, until this is dropped.
#[derive(Debug)]
pub(super) struct Answering(Arc<Requests>);

impl Requests {
    /// A head was read.
    pub(super) fn begin(self: &Arc<Self>) -> Answering {
        self.begun.fetch_add(1, Ordering::Relaxed);
        Answering(Arc::clone(self))
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::Relaxed);
    }
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// The beginning of a request.
    Request,
    /// The end of a head.
    Head,
    /// Nothing: a request is being answered, which has a time of its own.
    Answer,
}

/// A stream whose reads fail when nothing comes in time.
#[derive(Debug)]
pub(super) struct Paced<S> {
    stream: S,
    requests: Arc<Requests>,
    /// How many requests had begun when that was looked at last.
    begun: u64,
    wait: Wait,
    timer: Pin<Box<Sleep>>,
    head: Duration,
    idle: Duration,
}

impl<S> Paced<S> {
    /// A head has `head` for its end, and the first one for its beginning as well; before later ones there may be silence
    /// for `idle`.
    pub(super) fn new(stream: S, requests: Arc<Requests>, head: Duration, idle: Duration) -> Self {
        Self { stream, requests, begun: 0, wait: Wait::Request, timer: Box::pin(sleep(head)), head, idle }
    }

    fn wait(&mut self, wait: Wait, time: Duration) {
        self.wait = wait;
        self.timer.as_mut().reset(Instant::now() + time);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let begun = this.requests.begun.load(Ordering::Relaxed);
        if begun != this.begun {
            (this.begun, this.wait) = (begun, Wait::Answer);
        }
        if this.wait == Wait::Answer && begun == this.requests.ended.load(Ordering::Relaxed) {
            this.wait(Wait::Request, this.idle);
        }
        let before = buffer.filled().len();
        match Pin::new(&mut this.stream).poll_read(context, buffer) {
            Poll::Pending if this.wait != Wait::Answer => {
                ready!(this.timer.as_mut().poll(context));
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            read => {
                if this.wait == Wait::Request && buffer.filled().len() > before {
                    this.wait(Wait::Head, this.head);
                }
                read
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
