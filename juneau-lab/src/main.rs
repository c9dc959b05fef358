//! `juneau-lab`: see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    juneau_lab::cli::main()
}
