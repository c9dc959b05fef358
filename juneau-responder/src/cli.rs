//! The command line, as an image's entry point has it.

use crate::error::{Context, Result};
use crate::{protocol, run};
use clap::{Parser, Subcommand};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Where a Pod's container is told its namespace.
const NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// A Pod's host name, which is its name.
const HOSTNAME: &str = "/proc/sys/kernel/hostname";

/// How long an order may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Answers in a Pod: says its Pod's name, remembers what reached it, and probes others.
#[derive(Debug, Parser)]
#[command(name = "juneau-responder", version)]
struct Cli {
    /// Where orders are taken
    #[arg(long, global = true, default_value = "/tmp/responder.sock", value_name = "PATH")]
    socket: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Answer until the end
    Serve {
        /// Name to answer with: NAMESPACE/POD; without it what the Pod is told
        #[arg(long)]
        name: Option<String>,
    },
    /// Hand the order on standard input to the one that answers here, and write what came of it
    Ask,
}

/// Does what this process's arguments say.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.command {
        Command::Serve { name } => name.map_or_else(name_of_pod, Ok).and_then(|name| run(&name, &cli.socket)),
        Command::Ask => ask(&cli.socket),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing can be done about a closed standard error.
            writeln!(std::io::stderr(), "juneau-responder: {error}").ok();
            ExitCode::FAILURE
        }
    }
}

fn name_of_pod() -> Result<String> {
    let read = |path: &str| std::fs::read_to_string(path).context(|| format!("reading {path}"));
    Ok(format!("{}/{}", read(NAMESPACE)?.trim(), read(HOSTNAME)?.trim()))
}

fn ask(socket: &Path) -> Result<()> {
    let mut order = Vec::new();
    std::io::stdin().lock().read_to_end(&mut order).context(|| "reading the order")?;
    let order = serde_json::from_slice(&order);
    let order = order.map_err(|source| crate::ResponderError::Document { path: "standard input".into(), source })?;
    let answer: serde_json::Value = protocol::call(socket, &order, PATIENCE)?;
    let mut out = std::io::stdout();
    writeln!(out, "{answer}").and_then(|()| out.flush()).context(|| "writing the answer")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
