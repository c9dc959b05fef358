//! The command line.

use crate::cluster::Options;
use crate::error::{ClusterError, Context, Result};
use crate::kubectl::Kubectl;
use crate::paths::{DEFAULT_DIR, Paths};
use crate::state::State;
use crate::up::{self, Up};
use crate::{hold, init, keep};
use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A real Kubernetes cluster on one machine: nodes as namespaces, each with a kubelet and a containerd
#[derive(Debug, Parser)]
#[command(name = "juneau-cluster", version)]
struct Cli {
    /// Where the cluster keeps its things; clusters in different directories do not see each other
    #[arg(long, global = true, default_value = DEFAULT_DIR, value_name = "DIR")]
    state_dir: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a cluster, or start it anew, with Juneau and tenants, and check who reaches whom
    Up(Up),
    /// Remove the cluster and everything it made
    Down,
    /// Check who reaches whom by ICMP, TCP and UDP: expected and seen
    Check,
    /// Run a command inside a node
    Exec {
        /// The node
        node: String,
        /// The command and its arguments
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Import images into every node, from OCI archives
    Import {
        /// The archives
        #[arg(required = true)]
        archives: Vec<PathBuf>,
    },
    /// Print where the administrator's kubeconfig is
    Kubeconfig,
    /// Run kubectl as the administrator
    Kubectl {
        /// Arguments for kubectl
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Start a cluster and keep it (background)
    #[command(hide = true)]
    Keep {
        #[arg(long)]
        responder: Option<PathBuf>,
        #[arg(long = "image")]
        images: Vec<PathBuf>,
    },
    /// Hold a node's namespaces (background)
    #[command(hide = true)]
    Hold {
        #[arg(long)]
        node: String,
    },
    /// Be a node's first process (background)
    #[command(hide = true)]
    Init {
        #[arg(long)]
        node: String,
    },
}

/// Does what this process's arguments say.
#[must_use]
pub fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let usage = matches!(error, ClusterError::Usage(_));
            // Nothing can be done about a closed standard error.
            writeln!(std::io::stderr(), "juneau-cluster: {error}").ok();
            ExitCode::from(if usage { 2 } else { 1 })
        }
    }
}

fn run(cli: Cli) -> Result<bool> {
    let dir = std::path::absolute(&cli.state_dir).on("finding", &cli.state_dir)?;
    let paths = Paths::new(dir);
    match cli.command {
        Command::Up(options) => return up::up(&paths, &options),
        Command::Down => up::down(&paths)?,
        Command::Check => {
            let state = State::of_running(&paths)?;
            return up::show_check(&Kubectl::new(&paths, &state)?);
        }
        Command::Exec { node, command } => exec(&paths, &node, &command)?,
        Command::Import { archives } => import(&paths, &archives)?,
        Command::Kubeconfig => print(&format!("{}\n", State::of_running(&paths)?.kubeconfig.display())),
        Command::Kubectl { arguments } => {
            let mut kubectl = Kubectl::new(&paths, &State::of_running(&paths)?)?.command(arguments);
            return Err(ClusterError::Io { what: "running kubectl".to_owned(), source: kubectl.exec() });
        }
        Command::Keep { responder, images } => {
            let program = std::env::current_exe().context(|| "finding this program")?;
            keep::run(&paths, &Options { responder, images, ..Options::new(program) })?;
        }
        Command::Hold { node } => match hold::run(&paths, &node)? {},
        Command::Init { node } => {
            log_to_standard_error();
            match init::run(&paths, &node)? {}
        }
    }
    Ok(true)
}

/// Becomes a command inside a node.
fn exec(paths: &Paths, node: &str, command: &[OsString]) -> Result<()> {
    let [program, arguments @ ..] = command else {
        return Err(ClusterError::Usage("there is no command to run: put it behind --".to_owned()));
    };
    let node = State::of_running(paths)?.node(paths, node)?;
    let source = node.command(Path::new(program))?.args(arguments).exec();
    Err(ClusterError::Io { what: format!("running {}", program.display()), source })
}

fn import(paths: &Paths, archives: &[PathBuf]) -> Result<()> {
    let state = State::of_running(paths)?;
    for name in state.nodes.keys() {
        let node = state.node(paths, name)?;
        for archive in archives {
            let file = std::path::absolute(archive).on("finding", archive)?;
            node.import(&file)?;
            print(&format!("{name}: {}\n", archive.display()));
        }
    }
    Ok(())
}

/// Prints. A reader that has gone away is no reason to stop.
pub(crate) fn print(text: &str) {
    let mut out = std::io::stdout();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).ok();
}

fn log_to_standard_error() {
    tracing_subscriber::fmt().with_ansi(false).with_writer(std::io::stderr).init();
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound_and_explained() {
        let mut command = Cli::command();
        command.build();
        command.clone().debug_assert();
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            assert!(sub.get_about().is_some(), "{} says nothing about itself", sub.get_name());
            for argument in sub.get_arguments().filter(|argument| argument.get_id() != "help") {
                assert!(argument.get_help().is_some(), "{} {}", sub.get_name(), argument.get_id());
            }
        }
    }
}
