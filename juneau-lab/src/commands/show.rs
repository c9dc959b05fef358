//! `status`, `check`, `logs`.

use super::{columns, print};
use crate::check::{self, Subject};
use crate::cli::Output;
use crate::cluster::Cluster;
use crate::error::{LabError, Result};
use crate::paths::Paths;
use crate::process::Process;
use crate::state::State;
use juneau_api::source::directory::DirectorySource;
use serde::Serialize;
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Shows the lab's nodes and Pods. Returns whether it is what its manifests say.
///
/// # Errors
/// [`LabError::NotRunning`], or the output cannot be made.
pub fn status(paths: &Paths, output: Output) -> Result<bool> {
    let state = State::read(paths)?.ok_or_else(|| LabError::NotRunning { dir: paths.dir().to_owned() })?;
    let running = state.supervisor.runs();
    if output == Output::Json {
        print_json(paths, &state)?;
    } else {
        print(&describe(&state));
        if !running {
            print(&format!("\n{}\n", LabError::SupervisorGone { log: paths.log("supervisor") }));
        }
    }
    Ok(running && state.waiting.is_empty() && state.problems.is_empty())
}

/// Nodes, Pods and problems as tables.
pub(super) fn describe(state: &State) -> String {
    let pid = |process: Option<&Process>| process.map_or_else(|| "-".to_owned(), |process| process.pid.to_string());
    let row = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>();
    let mut nodes = vec![row(&["NODE", "ADDRESS", "AGENT", "READY", "RESTARTS", "NETWORK NAMESPACE"])];
    nodes.extend(state.nodes.iter().map(|(name, node)| {
        let address = node.address.to_string();
        let ready = if node.ready { "yes" } else { "no" };
        let (agent, restarts) = (pid(node.agent.as_ref()), node.restarts.to_string());
        row(&[name, &address, &agent, ready, &restarts, &node.netns.display().to_string()])
    }));
    let mut pods = vec![row(&["POD", "NODE", "ADDRESS", "MAC", "MTU", "HOST INTERFACE", "NETWORK NAMESPACE"])];
    pods.extend(state.pods.iter().map(|(name, pod)| {
        let netns = pod.netns.display().to_string();
        match &pod.attached {
            Some(at) => row(&[name, &pod.node, &at.address, &at.mac, &at.mtu.to_string(), &at.host_interface, &netns]),
            None => row(&[name, &pod.node, "-", "-", "-", "-", &netns]),
        }
    }));
    let mut text = format!("{}\n{}", columns(&nodes), columns(&pods));
    for waiting in &state.waiting {
        text.push_str(&format!("\nwaiting for {waiting}"));
    }
    for problem in &state.problems {
        text.push_str(&format!("\nproblem: {problem}"));
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// Checks who reaches whom. Returns whether every cell is as expected.
///
/// # Errors
/// When there is no lab to check.
pub fn check(paths: &Paths, output: Output) -> Result<bool> {
    let state = State::of_running(paths)?;
    let snapshot = DirectorySource::new(paths.manifests()).read();
    let snapshot = snapshot.map_err(|error| LabError::Manifests(error.to_string()))?;
    let cluster = Cluster::from(&snapshot.view);
    let subjects: BTreeMap<String, Subject> = cluster
        .pods
        .keys()
        .map(|name| {
            let subject = match state.pods.get(name) {
                Some(pod) if pod.responder.is_some_and(|responder| responder.runs()) => {
                    Ok(paths.responder_socket(name))
                }
                Some(pod) => Err(pod.problem.clone().unwrap_or_else(|| "it is not up yet".to_owned())),
                None => Err("it does not exist yet".to_owned()),
            };
            (name.clone(), subject)
        })
        .collect();
    let report = check::run(&check::plan(&cluster), &subjects)?;
    match output {
        Output::Json => print_json(paths, &report)?,
        Output::Text => print(&check::render(&cluster, &report)),
    }
    Ok(report.ok)
}

/// Shows logs: of one node or Pod, or all; with `follow` until interrupted. Becomes tail(1).
///
/// # Errors
/// When there is no such log.
pub fn logs(paths: &Paths, name: Option<&str>, follow: bool) -> Result<()> {
    if !paths.logs().is_dir() {
        return Err(LabError::NotRunning { dir: paths.dir().to_owned() });
    }
    let mut files = Vec::new();
    match name {
        Some(name) => {
            let file = paths.log(name);
            if !file.is_file() {
                let known = State::read(paths)?.map_or_else(|| "none".to_owned(), |state| state.known());
                return Err(LabError::NoSuchTarget { name: name.to_owned(), known: format!("supervisor, {known}") });
            }
            files.push(file);
        }
        None => files.extend(std::fs::read_dir(paths.logs()).into_iter().flatten().flatten().map(|entry| entry.path())),
    }
    files.sort();
    let mut command = Command::new("tail");
    command.args(["-n", "+1"]).args(follow.then_some("-F")).args(files);
    Err(LabError::Program { program: "tail".to_owned(), package: "coreutils", source: command.exec() })
}

pub(super) fn print_json(paths: &Paths, value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value);
    let text = text.map_err(|source| LabError::Document { path: paths.dir().to_owned(), source })?;
    print(&format!("{text}\n"));
    Ok(())
}
