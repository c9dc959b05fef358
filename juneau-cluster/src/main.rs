//! `juneau-cluster`: see the library. Under the names `juneau-agent`, `juneau-operator`, `juneau-responder` and `kubectl-juneau` it is those
//! programs, so that tests have them without building them by themselves.

use clap::Parser;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let name = std::env::args_os().next().unwrap_or_default();
    match Path::new(&name).file_name().and_then(|name| name.to_str()) {
        Some("juneau-agent") => juneau_agent::cli::main(juneau_agent::cli::Cli::parse()),
        Some("juneau-operator") => juneau_operator::cli::main(juneau_operator::cli::Cli::parse()),
        Some("kubectl-juneau") => juneau_cli::run::main(juneau_cli::cli::Cli::parse()),
        Some("juneau-responder") => juneau_responder::cli::main(),
        _ => juneau_cluster::cli::main(),
    }
}
