//! `juneau-operator`: plans ids, addresses and statuses, and admits objects.

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    juneau_operator::cli::main(juneau_operator::cli::Cli::parse())
}
