//! `juneau-responder`: see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    juneau_responder::cli::main()
}
