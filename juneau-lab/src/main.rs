//! `juneau-lab`: see the library. Under the name `juneau-agent` it is the node daemon, so that a lab needs nothing but
//! this one file.

use clap::Parser;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let name = std::env::args_os().next().unwrap_or_default();
    if Path::new(&name).file_name().is_some_and(|name| name == "juneau-agent") {
        return juneau_agent::cli::main(juneau_agent::cli::Cli::parse());
    }
    juneau_lab::cli::main()
}
