//! The daemon: lock, sockets, loop.

use crate::engine::{Engine, EngineError, Inputs, Source, SourceError};
use crate::lock::{Lock, LockError};
use crate::options::Options;
use crate::probes::{self, Registry};
use crate::server::SocketError;
use crate::{metrics, net, server};
use std::future::Future;
use std::io;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// Why the daemon did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// Another agent runs.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A socket cannot be served.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// Objects cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The loop cannot begin.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The runtime or its signals cannot be set up.
    #[error("the runtime cannot start: {0}")]
    Runtime(#[from] io::Error),
}

/// Runs the daemon in the calling thread's namespaces until SIGTERM or SIGINT. What it programmed stays in force.
///
/// # Errors
/// [`AgentError`].
pub fn run(options: Options) -> Result<(), AgentError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        run_until(options, async move {
            tokio::select! {
                _ = terminate.recv() => tracing::info!("SIGTERM"),
                _ = interrupt.recv() => tracing::info!("SIGINT"),
            }
        })
        .await
    })
}

/// The same inside a runtime of the caller's, until `stop`. The runtime's threads must be in the namespaces of the
/// node, and the future must be polled by one of them that stays there.
///
/// # Errors
/// [`AgentError`].
pub async fn run_until(options: Options, stop: impl Future<Output = ()>) -> Result<(), AgentError> {
    let _lock = Lock::take(&options.state_dir)?;
    let socket = server::bind(&options.socket)?;
    let metrics_socket = server::bind(&options.metrics_socket)?;
    let (call_sender, calls) = mpsc::channel(64);
    let (scrape_sender, scrapes) = mpsc::channel(4);
    let (file_sender, file_changes) = mpsc::channel(1);
    let (network_sender, network_changes) = mpsc::channel(1);
    let paths = [options.socket.clone(), options.metrics_socket.clone()];
    let source = Source::open(&options, file_sender).await?;
    tracing::info!(node = %options.node, objects = %source, "starting");

    let registry = Arc::new(Registry::default());
    let executor = probes::serve(&options, Arc::clone(&registry)).map_err(EngineError::from)?;
    let engine = Engine::new(options, source, registry)?;
    let tasks = [
        server::serve(socket, call_sender),
        metrics::serve(metrics_socket, scrape_sender),
        net::watch(network_sender).map_err(EngineError::from)?,
    ];
    engine.run(Inputs { calls, scrapes, file_changes, network_changes }, stop).await;
    for task in tasks.into_iter().chain(executor) {
        task.abort();
    }
    for path in paths {
        // The next agent would remove it as well; without it a client is told at once that nobody listens.
        let _ = std::fs::remove_file(path);
    }
    tracing::info!("stopped; what was programmed stays in force");
    Ok(())
}
