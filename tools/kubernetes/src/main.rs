//! `juneau-controlplane`: builds the programs of Kubernetes, or runs a control plane until it is interrupted.

use clap::{Parser, Subcommand};
use juneau_controlplane::{Containers, ControlPlane, Error, Options, Program, Programs, Result, Tool};
use std::io::Write;
use std::process::ExitCode;

/// A real Kubernetes API server for tests and the lab
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Build the programs that are missing, and say where they are
    Build {
        /// Those of nodes, too, and what runs containers there
        #[arg(long)]
        nodes: bool,
        /// Kubernetes' own tests of a cluster, too
        #[arg(long)]
        conformance: bool,
    },
    /// Run etcd and kube-apiserver until interrupted
    Up {
        /// Run kube-controller-manager and kube-scheduler, too
        #[arg(long)]
        controllers: bool,
    },
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Build { nodes, conformance } => build(nodes, conformance),
        Command::Up { controllers } => up(controllers),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&mut std::io::stderr(), &error.to_string());
            ExitCode::FAILURE
        }
    }
}

/// A reader that has gone away is no reason to stop.
fn say(out: &mut dyn Write, line: &str) {
    writeln!(out, "kubernetes: {line}").ok();
}

fn build(nodes: bool, conformance: bool) -> Result<()> {
    let mut wanted = if nodes { Program::ALL.to_vec() } else { Program::CONTROL_PLANE.to_vec() };
    if conformance {
        wanted.extend(Program::CONFORMANCE);
    }
    let programs = Programs::find_or_build_these(&wanted, &mut |line| say(&mut std::io::stderr(), line))?;
    let mut out = std::io::stdout();
    writeln!(out, "{}", programs.etcd().display()).ok();
    for program in wanted {
        writeln!(out, "{}", programs.path(program).display()).ok();
    }
    if nodes {
        let containers = Containers::find_or_unpack(&mut |line| say(&mut std::io::stderr(), line))?;
        for tool in Tool::ALL {
            writeln!(out, "{}", containers.path(tool).display()).ok();
        }
    }
    Ok(())
}

fn up(controllers: bool) -> Result<()> {
    let programs = Programs::find_or_build(&mut |line| say(&mut std::io::stderr(), line))?;
    let options = if controllers { Options::default().controllers() } else { Options::default() };
    let start = std::time::Instant::now();
    let control_plane = ControlPlane::start(&programs, &options)?;
    let mut out = std::io::stdout();
    say(&mut out, &format!("ready after {:.1} s", start.elapsed().as_secs_f32()));
    say(&mut out, &format!("export KUBECONFIG={}", control_plane.kubeconfig().display()));
    say(&mut out, &format!("kubectl: {}", programs.path(Program::Kubectl).display()));
    wait_for_interrupt().map_err(|source| Error::Io { what: "waiting for an interrupt".to_owned(), source })
}

/// Waits for an interrupt or a request to end.
fn wait_for_interrupt() -> std::io::Result<()> {
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
