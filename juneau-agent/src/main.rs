//! `juneau-agent`: the node daemon and its debug client.

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    juneau_agent::cli::main(juneau_agent::cli::Cli::parse())
}
