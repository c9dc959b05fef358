//! `kubeconfig` and `kubectl`: the way to the API server of a lab on Kubernetes.

use super::print;
use crate::error::{Context, LabError, Result};
use crate::kubernetes::deploy;
use crate::paths::Paths;
use crate::state::State;
use juneau_controlplane::{Program, Programs};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// The kubeconfig of the lab at `paths`.
pub(super) fn find(paths: &Paths) -> Result<PathBuf> {
    let state = State::of_running(paths)?;
    state.kubernetes.map(|kubernetes| kubernetes.kubeconfig).ok_or_else(|| {
        let text = "this lab is on a directory of manifests; start one on Kubernetes: juneau-lab up --kubernetes";
        LabError::Usage(text.to_owned())
    })
}

/// Prints where the kubeconfig is.
///
/// # Errors
/// When the lab is on no API server.
pub fn kubeconfig(paths: &Paths) -> Result<()> {
    print(&format!("{}\n", find(paths)?.display()));
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

/// `kubectl apply` or `kubectl delete` of files; what it says is shown.
pub(super) fn change(paths: &Paths, verb: &str, files: &[PathBuf]) -> Result<()> {
    let mut command = command(paths)?;
    command.arg(verb);
    for file in files {
        command.arg("-f").arg(file);
    }
    let status = command.status().context(|| format!("running kubectl {verb}"))?;
    status.success().then_some(()).ok_or_else(|| LabError::Kubernetes(format!("kubectl {verb} ended with {status}")))
}
