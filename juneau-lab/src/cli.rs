//! The command line.

use crate::commands;
use crate::enter::Enter;
use crate::error::{LabError, Result};
use crate::paths::{DEFAULT_DIR, Paths};
use crate::{hold, responder, supervise};
use clap::{Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// How a table is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people
    Text,
    /// For programs
    Json,
}

/// How objects are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One line an object
    Text,
    /// As manifests
    Yaml,
    /// For programs
    Json,
}

/// A Juneau cluster in a box: nodes as namespaces, the real agent and BPF programs, on a directory of manifests or a Kubernetes API server
#[derive(Debug, Parser)]
#[command(name = "juneau-lab", version, after_help = EXIT)]
struct Cli {
    /// Where the lab keeps its things; labs in different directories do not see each other
    #[arg(long, global = true, default_value = DEFAULT_DIR, value_name = "DIR")]
    state_dir: PathBuf,
    #[command(subcommand)]
    command: Command,
}

const EXIT: &str = "\
Nodes and Pods are named as in the manifests: node-1, and red/a for Pod a in namespace red.
Exit status: 0 as it should be, 1 not (a cell of the table, a problem in status), 2 a wrong command line;
exec and capture give that of the command they run.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a cluster, or start it anew, and check who reaches whom
    Up(commands::Up),
    /// Remove the cluster and everything it made
    Down,
    /// Check who reaches whom by ICMP, TCP and UDP: expected and seen
    Check {
        /// How to show it
        #[arg(short, long, value_enum, default_value = "text")]
        output: Output,
    },
    /// Print the kubeconfig of the administrator of a lab on Kubernetes
    Kubeconfig {
        /// Print where the file is, instead of what is in it
        #[arg(long)]
        path: bool,
    },
    /// Run kubectl as the administrator of a lab on Kubernetes
    Kubectl {
        /// Arguments for kubectl
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Show nodes, agents, Pods and namespaces
    Status {
        /// How to show it
        #[arg(short, long, value_enum, default_value = "text")]
        output: Output,
    },
    /// Run a command inside a node or Pod
    Exec {
        /// Node or NAMESPACE/POD
        target: String,
        /// The command and its arguments
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Write manifests into the lab's directory, or to its API server, and wait until they are in force
    Apply {
        /// A file of manifests, or - for standard input; may be given several times
        #[arg(short, long = "file", required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Remove the objects that manifests name
    Delete {
        /// A file of manifests, or - for standard input; may be given several times
        #[arg(short, long = "file", required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Show the objects of the lab's directory or API server
    Get {
        /// A kind, such as pods or subnet [default: all]
        kind: Option<String>,
        /// A name, or NAMESPACE/NAME
        name: Option<String>,
        /// How to show them
        #[arg(short, long, value_enum, default_value = "text")]
        output: Format,
    },
    /// Add a node with the next free address
    AddNode {
        /// Its name
        name: String,
    },
    /// Show the logs of the supervisor, the agents and the Pods
    Logs {
        /// One node or Pod, supervisor or operator, or a program of the control plane [default: all of the lab's own]
        target: Option<String>,
        /// Go on until interrupted
        #[arg(short, long)]
        follow: bool,
    },
    /// Run tcpdump at eth0 of a Pod, or of a node (the underlay)
    Capture {
        /// Node or NAMESPACE/POD
        target: String,
        /// Arguments for tcpdump
        #[arg(last = true)]
        arguments: Vec<OsString>,
    },
    /// Follow the manifests (background)
    #[command(hide = true)]
    Supervise {
        #[arg(long)]
        mtu: u32,
        #[arg(long)]
        no_operator: bool,
        #[arg(long)]
        kubernetes: bool,
    },
    /// Hold a node's namespaces (background)
    #[command(hide = true)]
    Hold {
        #[arg(long)]
        cgroup: Option<PathBuf>,
    },
    /// Answer as a Pod (background)
    #[command(hide = true)]
    Responder {
        #[arg(long)]
        name: String,
        #[arg(long)]
        socket: PathBuf,
    },
    /// Enter namespaces and become a command (background)
    #[command(hide = true)]
    Enter {
        #[command(flatten)]
        enter: Enter,
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
}

/// Does what this process's arguments say.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let usage = matches!(error, LabError::Usage(_));
            // Nothing can be done about a closed standard error.
            writeln!(std::io::stderr(), "juneau-lab: {error}").ok();
            ExitCode::from(if usage { 2 } else { 1 })
        }
    }
}

fn run(cli: Cli) -> Result<bool> {
    let dir = std::path::absolute(&cli.state_dir)
        .map_err(|source| LabError::Io { what: format!("finding {}", cli.state_dir.display()), source })?;
    let paths = Paths::new(dir);
    match cli.command {
        Command::Up(options) => return commands::up(&paths, &options),
        Command::Check { output } => return commands::check(&paths, output),
        Command::Status { output } => return commands::status(&paths, output),
        Command::Down => commands::down(&paths)?,
        Command::Kubeconfig { path } => commands::kubeconfig(&paths, path)?,
        Command::Kubectl { arguments } => commands::kubectl(&paths, &arguments)?,
        Command::Exec { target, command } => commands::exec(&paths, &target, &command)?,
        Command::Apply { files } => commands::apply(&paths, &files)?,
        Command::Delete { files } => commands::delete(&paths, &files)?,
        Command::Get { kind, name, output } => commands::get(&paths, kind.as_deref(), name.as_deref(), output)?,
        Command::AddNode { name } => commands::add_node(&paths, &name)?,
        Command::Logs { target, follow } => commands::logs(&paths, target.as_deref(), follow)?,
        Command::Capture { target, arguments } => commands::capture(&paths, &target, &arguments)?,
        Command::Supervise { mtu, no_operator, kubernetes } => {
            log_to_standard_error()?;
            let follow = if kubernetes { supervise::Follow::Kubernetes } else { supervise::Follow::Directory };
            supervise::run(&paths, &supervise::Options { mtu, with_operator: !no_operator, follow })?;
        }
        Command::Hold { cgroup } => match hold::run(cgroup)? {},
        Command::Responder { name, socket } => responder::run(&name, &socket)?,
        Command::Enter { enter, command } => match enter.exec(&paths, &command)? {},
    }
    Ok(true)
}

/// What is logged is said by `RUST_LOG`, as in `info` or `juneau_lab=debug,warn`.
fn log_to_standard_error() -> Result<()> {
    let filter = filter(std::env::var("RUST_LOG").ok().as_deref())?;
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(std::io::stderr).init();
    Ok(())
}

fn filter(wish: Option<&str>) -> Result<tracing_subscriber::EnvFilter> {
    use tracing_subscriber::filter::{EnvFilter, LevelFilter};
    let builder = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into());
    let wish = wish.unwrap_or_default();
    builder.parse(wish).map_err(|error| LabError::Usage(format!("RUST_LOG {wish:?}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn a_filter_that_cannot_be_read_is_an_error() {
        for wish in [None, Some(""), Some("debug"), Some("juneau_lab=trace,warn")] {
            assert!(filter(wish).is_ok(), "{wish:?}");
        }
        let refused = filter(Some("juneau_lab=loud")).unwrap_err().to_string();
        assert!(refused.starts_with("RUST_LOG \"juneau_lab=loud\": "), "{refused}");
    }

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
