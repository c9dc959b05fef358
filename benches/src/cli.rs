//! The command line.

use std::ffi::OsString;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::agent;
use crate::cpu;
use crate::error::{Context, Error, Result};
use crate::kubernetes;
use crate::load::{self, Load};
use crate::measure::MEASURES;
use crate::namespace::Fabric;
use crate::ours::mount_pins;
use crate::report;
use crate::rounds::{self, Effort};
use crate::suites::SUITES;

/// Measures Juneau side by side with other data paths; needs root.
#[derive(Debug, Parser)]
#[command(version)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure, print the table, and write the summary.
    Run(Run),
    /// Print the names of all measures.
    List,
    /// Measure operator and agents on a Kubernetes API server, print the table, and write the summary.
    Kubernetes(Kubernetes),
    /// Serve loads until the standard input ends (started by `run`).
    #[command(hide = true)]
    Serve {
        #[arg(long)]
        cpu: usize,
    },
    /// Be the node daemon (started by `run`).
    #[command(hide = true, disable_help_flag = true)]
    Agent {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Be the operator (started by `kubernetes`).
    #[command(hide = true, disable_help_flag = true)]
    Operator {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Remove a cgroup when the standard input ends (started by `run`).
    #[command(hide = true)]
    Sweep { cgroup: PathBuf },
    /// Run one load against a server (started by `run`).
    #[command(hide = true)]
    Load {
        #[arg(value_enum)]
        load: Load,
        #[arg(long)]
        host: Ipv4Addr,
        #[arg(long)]
        milliseconds: u64,
        #[arg(long)]
        cpu: usize,
    },
}

#[derive(Debug, Args)]
struct Run {
    /// Only measures whose name contains one of these.
    filters: Vec<String>,
    /// Few and short rounds: below three minutes, for a first impression.
    #[arg(long)]
    quick: bool,
    /// Number of rounds, instead of 4 (quick) or 16.
    #[arg(long)]
    rounds: Option<usize>,
    /// Time of each load in a round, instead of 200 ms (quick) or 500 ms.
    #[arg(long)]
    milliseconds: Option<u64>,
    /// The processor that both ends of a path run on.
    #[arg(long, default_value_t = 0)]
    cpu: usize,
    /// Directory of the summary.
    #[arg(long, default_value = "target/bench")]
    output: PathBuf,
}

#[derive(Debug, Args)]
struct Kubernetes {
    /// Fewer Pods and no large cluster: two minutes, for a first impression.
    #[arg(long)]
    quick: bool,
    /// Only these parts; may be given several times.
    #[arg(long, value_enum, value_name = "PART")]
    only: Vec<kubernetes::Part>,
    #[command(flatten)]
    measured: kubernetes::Measured,
    /// Directory of the summary.
    #[arg(long, default_value = "target/bench/kubernetes")]
    output: PathBuf,
}

impl Cli {
    /// Does what the command line says.
    ///
    /// # Errors
    /// What stopped it; a goal that is missed is none.
    pub fn run(self) -> Result<()> {
        match self.command {
            Command::Run(run) => run.run(),
            Command::List => list(),
            Command::Serve { cpu } => {
                cpu::pin(cpu)?;
                load::serve()
            }
            Command::Agent { arguments } => {
                end_with_input();
                let arguments = std::iter::once(OsString::from("juneau-agent")).chain(arguments);
                // It has its own exit status, and ends by a signal.
                let _ = juneau_agent::cli::main(juneau_agent::cli::Cli::parse_from(arguments));
                Ok(())
            }
            Command::Operator { arguments } => {
                end_with_input();
                let arguments = std::iter::once(OsString::from("juneau-operator")).chain(arguments);
                let _ = juneau_operator::cli::main(juneau_operator::cli::Cli::parse_from(arguments));
                Ok(())
            }
            Command::Kubernetes(kubernetes) => kubernetes.run(),
            Command::Sweep { cgroup } => agent::sweep(&cgroup),
            Command::Load { load, host, milliseconds, cpu } => {
                cpu::pin(cpu)?;
                let outcome = load::run_client(load, host, Duration::from_millis(milliseconds))?;
                serde_json::to_writer(io::stdout(), &outcome)
                    .map_err(|error| Error::Io { what: "writing the outcome".into(), source: error.into() })
            }
        }
    }
}

/// Ends the process when its input does: whoever started it holds the other end, and nothing else tells that he is gone.
fn end_with_input() {
    std::thread::spawn(|| {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        std::process::exit(0);
    });
}

impl Kubernetes {
    fn run(self) -> Result<()> {
        let mut rows = report::Rows::default();
        let outcome = kubernetes::run(self.quick, &self.only, &self.measured, &mut rows);
        // What others found is still worth a table.
        report::print(rows.all(), io::stdout())?;
        report::write_summary(rows.all(), &self.output)?;
        outcome
    }
}

impl Run {
    fn run(self) -> Result<()> {
        let effort = Effort {
            rounds: self.rounds.unwrap_or(if self.quick { 4 } else { 16 }),
            time: Duration::from_millis(self.milliseconds.unwrap_or(if self.quick { 200 } else { 500 })),
            cpu: self.cpu,
        };
        mount_pins()?;
        let fabric = Fabric::new()?;
        let measures: Vec<_> = MEASURES.iter().filter(|measure| self.wants(measure.name)).copied().collect();
        let mut rows = Vec::new();
        let mut failure = None;
        let mut take = |result: Result<Vec<report::Row>>| match result {
            Ok(new) => rows.extend(new),
            // What others found is still worth a table.
            Err(error) => {
                report::progress(format!("failed: {error}"));
                failure = Some(error);
            }
        };
        take(rounds::run(&fabric, &measures, effort));
        for suite in SUITES {
            if suite.names.iter().any(|name| self.wants(name)) {
                take((suite.run)(&fabric, effort));
            }
        }
        rows.retain(|row| self.wants(&row.name));
        report::print(&rows, io::stdout())?;
        report::write_summary(&rows, &self.output)?;
        failure.map_or(Ok(()), Err)
    }

    fn wants(&self, name: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| name.contains(filter))
    }
}

fn list() -> Result<()> {
    let paths = MEASURES.iter().map(|measure| measure.name);
    let programs = SUITES.iter().flat_map(|suite| suite.names.iter().copied());
    for name in paths.chain(programs) {
        writeln!(io::stdout(), "{name}").context("printing the list")?;
    }
    Ok(())
}
