//! The benchmarks' program.

use std::process::ExitCode;

use clap::Parser;
use juneau_benches::cli::Cli;
use juneau_benches::report::progress;

fn main() -> ExitCode {
    match Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            progress(format!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}
