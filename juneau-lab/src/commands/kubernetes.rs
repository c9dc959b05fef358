//! `kubeconfig` and `kubectl`: the way to the API server of a lab on Kubernetes.

use super::print;
use crate::error::{Context, LabError, Result};
use crate::kubernetes::deploy;
use crate::paths::Paths;
use crate::state::State;
use juneau_api::source::decode;
use juneau_controlplane::{Program, Programs};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};

/// The kubeconfig of the lab at `paths`.
pub(super) fn find(paths: &Paths) -> Result<PathBuf> {
    let state = State::of_running(paths)?;
    state.kubernetes.map(|kubernetes| kubernetes.kubeconfig).ok_or_else(|| {
        let text = "this lab is on a directory of manifests; start one on Kubernetes: juneau-lab up --kubernetes";
        LabError::Usage(text.to_owned())
    })
}

/// Prints the kubeconfig, or where it is.
///
/// # Errors
/// When the lab is on no API server.
pub fn kubeconfig(paths: &Paths, only_path: bool) -> Result<()> {
    let file = find(paths)?;
    if only_path {
        print(&format!("{}\n", file.display()));
        return Ok(());
    }
    print(&std::fs::read_to_string(&file).context(|| format!("reading {}", file.display()))?);
    Ok(())
}

/// Becomes kubectl.
///
/// # Errors
/// When the lab is on no API server, or kubectl cannot be run.
pub fn kubectl(paths: &Paths, arguments: &[OsString]) -> Result<()> {
    let mut command = command(paths)?;
    command.args(arguments);
    Err(LabError::Io { what: "running kubectl".to_owned(), source: command.exec() })
}

/// kubectl with the lab's kubeconfig, and with a cache that goes with the lab.
fn command(paths: &Paths) -> Result<Command> {
    let kubeconfig = find(paths)?;
    let mut command = Command::new(program()?);
    command.env("KUBECONFIG", kubeconfig).env("KUBECACHEDIR", paths.control_plane().join("kubectl-cache"));
    Ok(command)
}

fn program() -> Result<PathBuf> {
    let programs = Programs::find_or_build(&mut |line| print(&format!("{line}\n")))?;
    Ok(programs.path(Program::Kubectl))
}

/// Gets the programs, and puts together what the lab's API server is given first.
pub(super) fn prepare(paths: &Paths) -> Result<()> {
    let kubectl = Command::new(program()?);
    let dir = paths.control_plane();
    std::fs::create_dir_all(&dir).context(|| format!("creating {}", dir.display()))?;
    deploy::collect(kubectl, &super::lifecycle::find(deploy::BASE)?, &paths.deploy())
}

/// `kubectl apply` of files or directories; what it says is shown.
pub(super) fn apply(paths: &Paths, files: &[PathBuf]) -> Result<()> {
    let mut command = command(paths)?;
    command.arg("apply");
    for file in files {
        command.arg("-f").arg(file);
    }
    succeed("apply", command.status())
}

/// What is deleted after everything else, in this order: the webhook admits none that is in use.
const LAST: [&str; 4] = ["RouteTable", "Subnet", "Vpc", "Namespace"];

/// `kubectl delete` of what manifests name, users before what they use.
pub(super) fn delete(paths: &Paths, texts: &[String]) -> Result<()> {
    let mut steps: [Vec<Value>; LAST.len() + 1] = Default::default();
    for text in texts {
        for object in decode::documents(text).map_err(LabError::Manifests)? {
            let step = LAST.iter().position(|kind| object["kind"] == *kind).map_or(0, |at| at + 1);
            if let Some(step) = steps.get_mut(step) {
                step.push(object);
            }
        }
    }
    for items in steps.into_iter().filter(|items| !items.is_empty()) {
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": items }).to_string();
        let mut command = command(paths)?;
        let what = || "running kubectl delete";
        let mut child = command.args(["delete", "-f", "-"]).stdin(Stdio::piped()).spawn().context(what)?;
        if let Some(mut input) = child.stdin.take() {
            input.write_all(list.as_bytes()).context(what)?;
        }
        succeed("delete", child.wait())?;
    }
    Ok(())
}

fn succeed(verb: &str, status: std::io::Result<ExitStatus>) -> Result<()> {
    let status = status.context(|| format!("running kubectl {verb}"))?;
    status.success().then_some(()).ok_or_else(|| LabError::Kubernetes(format!("kubectl {verb} ended with {status}")))
}
