//! `kubectl-juneau`, and `kubectl_complete-juneau` by a link of that name.

use clap::Parser as _;
use juneau_cli::{cli::Cli, complete, run};
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut words = std::env::args();
    let program = words.next().unwrap_or_default();
    if Path::new(&program).file_name().is_some_and(|name| name == complete::PROGRAM) {
        let text = complete::complete(&words.collect::<Vec<_>>());
        return match std::io::stdout().write_all(text.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    run::main(Cli::parse())
}
