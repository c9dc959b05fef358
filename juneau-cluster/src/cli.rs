//! The command line.

use crate::error::{ClusterError, Context, Result};
use crate::paths::{DEFAULT_DIR, Paths};
use crate::{hold, init};
use clap::{Parser, Subcommand};
use std::io::Write;
use std::path::PathBuf;
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
    /// Remove the cluster and everything it made
    Down,
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
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let usage = matches!(error, ClusterError::Usage(_));
            // Nothing can be done about a closed standard error.
            writeln!(std::io::stderr(), "juneau-cluster: {error}").ok();
            ExitCode::from(if usage { 2 } else { 1 })
        }
    }
}

fn run(cli: Cli) -> Result<()> {
    let dir = std::path::absolute(&cli.state_dir).on("finding", &cli.state_dir)?;
    let paths = Paths::new(dir);
    match cli.command {
        Command::Down => crate::teardown(&paths),
        Command::Hold { node } => match hold::run(&paths, &node)? {},
        Command::Init { node } => {
            log_to_standard_error();
            match init::run(&paths, &node)? {}
        }
    }
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
