//! `juneau-mutants [NAME…]`: plants the faults of `tests/mutants/` and sees that each is found.

use std::path::Path;
use std::process::ExitCode;

use juneau_mutants::run::{Runner, run};

fn main() -> ExitCode {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository.join("target"), Into::into);
    let runner = Runner::new(&repository, &target);
    let mut out = std::io::stdout().lock();
    match run(&runner, &names, &mut out) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            use std::io::Write;
            // Nothing is left to do if this cannot be written, either.
            let _ = writeln!(std::io::stderr(), "juneau-mutants: {error}");
            ExitCode::FAILURE
        }
    }
}
