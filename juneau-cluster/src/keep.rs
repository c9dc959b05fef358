//! The process that a cluster ends with.

use crate::cluster::{Cluster, Options};
use crate::error::{Context, Result};
use crate::paths::Paths;
use crate::state::State;
use juneau_lab::process::Process;
use std::fs::OpenOptions;
use std::io::Write;
use std::sync::Mutex;

/// The line by which it says that everything runs.
pub(crate) const READY: &str = "ready";

/// Starts a cluster, says line by line what happens, in the end [`READY`], and keeps it until it is told to end.
///
/// # Errors
/// When the cluster does not start.
pub(crate) fn run(paths: &Paths, options: &Options) -> Result<()> {
    let mut out = std::io::stdout();
    let mut say = |line: &str| {
        // A reader that has gone away is no reason to stop.
        writeln!(out, "{line}").and_then(|()| out.flush()).ok();
    };
    let cluster = Cluster::start(paths, options, &mut say)?;
    let log = paths.lab().logs().join("keeper.log");
    let file = OpenOptions::new().create(true).append(true).open(&log).on("opening", &log)?;
    tracing_subscriber::fmt().with_ansi(false).with_writer(Mutex::new(file)).init();
    let nodes = cluster.nodes();
    let state = State {
        keeper: Process::this()?,
        kubeconfig: cluster.control_plane()?.kubeconfig(),
        nodes: nodes.iter().map(|node| (node.name().to_owned(), node.address())).collect(),
        api_server: nodes.first().map_or(std::net::Ipv4Addr::UNSPECIFIED, crate::Node::address),
    };
    state.write(paths)?;
    say(READY);
    wait_for_the_end().context(|| "waiting for the end")
}

fn wait_for_the_end() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut end = signal(SignalKind::terminate())?;
        tokio::select! {
            interrupted = tokio::signal::ctrl_c() => interrupted,
            _ = end.recv() => Ok(()),
        }
    })
}
