//! What wakes the supervisor.

use super::control::Waiting;
use crate::error::{LabError, Result};
use crate::kubernetes::{Server, Told, wait_for_webhook};
use crate::process::Process;
use juneau_agent::protocol::{Method, Status, call};
use notify::{RecursiveMode, Watcher};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::mpsc::Sender;
use std::time::Duration;

/// Something happened.
#[derive(Debug)]
pub(super) enum Event {
    /// A file in the directory of manifests.
    Manifests,
    /// The control plane started, or did not.
    Server(Box<std::result::Result<Server, String>>),
    /// The API server said what there should be.
    Told(Told),
    /// The operator, this process, answers the API server.
    OperatorAnswers(Process),
    /// A process of the lab ended.
    Ended(Process, String),
    /// The agent of a node says that everything is programmed.
    AgentReady(String, Process, Box<Status>),
    /// A command wants to be told when the lab has settled.
    Asked(Waiting),
}

/// Watches the directory of manifests, as long as the result lives.
pub(super) fn watch(dir: &Path, events: Sender<Event>) -> Result<notify::RecommendedWatcher> {
    let failed = |error: notify::Error| LabError::Manifests(format!("watching {}: {error}", dir.display()));
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // Reading a file is no change. An error (an overflow) is a reason to look.
        if !event.is_ok_and(|event| event.kind.is_access()) {
            events.send(Event::Manifests).ok();
        }
    })
    .map_err(failed)?;
    watcher.watch(dir, RecursiveMode::Recursive).map_err(failed)?;
    Ok(watcher)
}

/// Tells when a child ends.
pub(super) fn wait_for_end(mut child: Child, process: Process, events: Sender<Event>) {
    std::thread::spawn(move || {
        let status = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        events.send(Event::Ended(process, status)).ok();
    });
}

/// Tells when the operator answers the API server, unless it ends before.
pub(super) fn wait_for_operator(process: Process, kubeconfig: PathBuf, events: Sender<Event>) {
    std::thread::spawn(move || match wait_for_webhook(&kubeconfig, || !process.runs()) {
        Ok(true) => drop(events.send(Event::OperatorAnswers(process))),
        Ok(false) => {}
        Err(error) => tracing::error!("asking the operator: {error}"),
    });
}

/// Tells when an agent is ready, unless it ends before.
pub(super) fn wait_for_agent(node: String, process: Process, socket: PathBuf, events: Sender<Event>) {
    std::thread::spawn(move || {
        while process.runs() {
            match call::<Status>(&socket, &Method::Status, Duration::from_secs(2)) {
                Ok(status) if status.ready => {
                    events.send(Event::AgentReady(node, process, Box::new(status))).ok();
                    return;
                }
                _ => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    });
}
