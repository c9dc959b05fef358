//! `status`, `check`, `logs`.

use super::{columns, print};
use crate::check::{self, Subject};
use crate::cli::Output;
use crate::cluster::Cluster;
use crate::error::{LabError, Result};
use crate::paths::Paths;
use crate::process::Process;
use crate::responder::{self, Order};
use crate::state::State;
use crate::supervise::{Ask, ask};
use juneau_agent::protocol::{self, Method, call};
use juneau_api::source::directory::DirectorySource;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// How long a check waits for changes to be in force.
const IN_FORCE: Duration = Duration::from_secs(10);

/// Shows the lab's nodes and Pods. Returns whether it is what its manifests say.
///
/// # Errors
/// [`LabError::NotRunning`], or the output cannot be made.
pub fn status(paths: &Paths, output: Output) -> Result<bool> {
    let state = State::read(paths)?.ok_or_else(|| LabError::NotRunning { dir: paths.dir().to_owned() })?;
    let running = state.supervisor.runs();
    let problems = problems(&state);
    if output == Output::Json {
        print_json(paths, &Status { running, problems: &problems, lab: &state })?;
    } else {
        print(&describe(&state));
        print(&list_problems(&problems));
        if !running {
            print(&format!("\n{}\n", LabError::SupervisorGone { log: paths.log("supervisor") }));
        }
    }
    Ok(running && state.waiting.is_empty() && problems.is_empty())
}

/// What `status -o json` shows: the state, and who says that something is wrong.
#[derive(Serialize)]
struct Status<'a> {
    running: bool,
    #[serde(flatten)]
    lab: &'a State,
    problems: &'a Problems,
}

/// Problems with their remedies, each with the nodes whose agents have it; none for what the lab itself found.
pub(super) type Problems = BTreeMap<String, BTreeSet<String>>;

/// Asks the agents what is wrong.
pub(super) fn problems(state: &State) -> Problems {
    let mut all: Problems = state.problems.iter().map(|problem| (problem.clone(), BTreeSet::new())).collect();
    // The supervisor hears of it only when it asks for something.
    let control_plane = state.kubernetes.iter().flat_map(|kubernetes| &kubernetes.processes);
    for process in control_plane.filter(|process| !process.runs()) {
        let text = format!("process {} of the control plane ended; start the lab anew: juneau-lab up", process.pid);
        all.insert(text, BTreeSet::new());
    }
    for (name, node) in state.nodes.iter().filter(|(_, node)| node.agent.is_some_and(|agent| agent.runs())) {
        let status = call::<protocol::Status>(&node.socket, &Method::Status, Duration::from_secs(2));
        let found = match status {
            Ok(status) => status
                .problems
                .into_iter()
                .map(|problem| format!("{}: {}; {}", problem.object, problem.message, problem.remedy))
                .collect(),
            Err(error) => vec![error.to_string()],
        };
        for problem in found {
            all.entry(problem).or_default().insert(name.clone());
        }
    }
    all
}

/// Problems as text.
pub(super) fn list_problems(problems: &Problems) -> String {
    let line = |(problem, nodes): (&String, &BTreeSet<String>)| {
        let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
        let place = if nodes.is_empty() { String::new() } else { format!(" ({})", nodes.join(", ")) };
        format!("problem{place}: {problem}\n")
    };
    problems.iter().map(line).collect()
}

/// Nodes and Pods as tables, and what is waited for.
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
    if let Some(kubernetes) = &state.kubernetes {
        text.push_str(&format!("\nAPI server: kubectl --kubeconfig {}\n", kubernetes.kubeconfig.display()));
    }
    for waiting in &state.waiting {
        text.push_str(&format!("\nwaiting for {waiting}"));
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// What there should be.
pub(super) fn cluster(paths: &Paths, state: &State) -> Result<Cluster> {
    if let Some(kubernetes) = &state.kubernetes {
        return crate::kubernetes::read(&kubernetes.kubeconfig);
    }
    let snapshot = DirectorySource::new(paths.manifests()).read();
    let snapshot = snapshot.map_err(|error| LabError::Manifests(error.to_string()))?;
    Ok(Cluster::from(&snapshot.view))
}

/// Checks who reaches whom. Returns whether every cell is as expected.
///
/// # Errors
/// When there is no lab to check.
pub fn check(paths: &Paths, output: Output) -> Result<bool> {
    let mut state = State::of_running(paths)?;
    if state.kubernetes.is_some() {
        // kubectl does not wait until what it wrote is in force. What is not in force in time shows in the table.
        state = ask(paths, Ask::Settled, IN_FORCE).or_else(|_| State::of_running(paths))?;
    }
    let cluster = cluster(paths, &state)?;
    let subjects: BTreeMap<String, Subject<PathBuf>> = cluster
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
    let call = |socket: &PathBuf, order: &Order, timeout| {
        responder::call(socket, order, timeout).map_err(|error| error.to_string())
    };
    let report = check::run(&check::plan(&cluster), &subjects, call)?;
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
            let places = [paths.log(name), paths.control_plane().join(format!("{name}.log"))];
            let Some(file) = places.into_iter().find(|place| place.is_file()) else {
                let state = State::read(paths)?;
                let others = match state.as_ref().is_some_and(|state| state.kubernetes.is_some()) {
                    true => "supervisor, operator, etcd, kube-apiserver, kube-controller-manager, kube-scheduler",
                    false => "supervisor, operator",
                };
                let known = state.map_or_else(|| "none".to_owned(), |state| state.known());
                return Err(LabError::NoSuchTarget { name: name.to_owned(), known: format!("{others}, {known}") });
            };
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
