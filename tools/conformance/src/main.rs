//! `juneau-conformance`: runs Kubernetes' own tests of the network, or writes the page that lists them.

use clap::{Parser, Subcommand};
use juneau_conformance::run::{self, Options};
use juneau_conformance::{Error, List, Result, document};
use regex::Regex;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Kubernetes' own tests of the network, against a cluster of ours
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the tests that are to pass; exit status 1 when one does not
    Run {
        /// The cluster: used when it runs, else started, and removed at the end
        #[arg(long, default_value = "/run/juneau-conformance", value_name = "DIR")]
        state_dir: PathBuf,
        /// Leave a cluster that was started
        #[arg(long)]
        keep: bool,
        /// Archives of agent and operator [default: target/images]
        #[arg(long, value_name = "DIR")]
        images: Option<PathBuf>,
        /// Run tests of the list whose names match, whatever is expected of them
        #[arg(long, value_name = "REGEX", conflicts_with = "all")]
        focus: Option<Regex>,
        /// Run all tests of the list, those that are expected to fail as well
        #[arg(long)]
        all: bool,
        /// How many tests at a time
        #[arg(long, default_value_t = 4, value_name = "N")]
        procs: u32,
        /// Minutes after which all end
        #[arg(long, default_value_t = 30, value_name = "MINUTES")]
        timeout: u64,
        /// Directory for reports and output [default: target/conformance]
        #[arg(long, value_name = "DIR")]
        output: Option<PathBuf>,
    },
    /// Write the list into docs/conformance.md
    Document,
}

fn main() -> ExitCode {
    match perform(Cli::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(&format!("conformance: {error}"));
            ExitCode::from(2)
        }
    }
}

/// A reader that has gone away is no reason to stop.
fn say(line: &str) {
    writeln!(std::io::stdout(), "{line}").ok();
}

fn perform(command: Command) -> Result<bool> {
    let list = List::ours()?;
    match command {
        Command::Run { state_dir, keep, images, focus, all, procs, timeout, output } => {
            let program = std::env::current_exe().map_err(|source| failed("finding this program", source))?;
            let target = program.ancestors().nth(2).unwrap_or(Path::new("target")).to_owned();
            let options = Options {
                state_dir,
                keep,
                cluster: program.with_file_name("juneau-cluster"),
                images,
                folder: output.unwrap_or_else(|| target.join("conformance")),
                focus,
                all,
                processes: procs,
                timeout: Duration::from_secs(timeout * 60),
            };
            let verdict = run::run(&list, &options, &mut |line| say(&format!("conformance: {line}")))?;
            verdict.lines.iter().for_each(|line| say(line));
            say(&verdict.summary());
            Ok(verdict.good)
        }
        Command::Document => {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/conformance.md");
            let page = fs::read_to_string(&path).map_err(|source| failed("reading the page", source))?;
            let made = document::with_table(&path, &page, &list)?;
            fs::write(&path, made).map_err(|source| failed("writing the page", source))?;
            Ok(true)
        }
    }
}

fn failed(what: &str, source: std::io::Error) -> Error {
    Error::Io { what: what.to_owned(), source }
}
