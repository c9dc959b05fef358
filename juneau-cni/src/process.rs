//! The process: arguments, standard input, standard output.

use crate::config::CONFIG_LIMIT;
use crate::environment::Variables;
use crate::error::{CniError, Code};
use crate::protocol::{self, call_within};
use crate::respond::{Outcome, respond};
use crate::version::Version;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::process::ExitCode;
use std::time::Duration;

/// The longest time that the agent may take to answer.
pub const TIMEOUT: Duration = Duration::from_secs(5);

/// Runs the plugin once. With `--version` it says what it is.
#[must_use]
pub fn main(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let outcome = match arguments.nth(1) {
        None => plugin(),
        Some(argument) if argument == "--version" => Outcome { output: about().into_bytes(), success: true },
        Some(_) => Outcome { output: usage().document(Version::NEWEST), success: false },
    };
    let mut out = io::stdout().lock();
    let written = out.write_all(&outcome.output).and_then(|()| out.flush());
    match (written, outcome.success) {
        (Ok(()), true) => ExitCode::SUCCESS,
        // There is nobody left to tell.
        _ => ExitCode::FAILURE,
    }
}

fn plugin() -> Outcome {
    // One byte more than allowed, so that a configuration of exactly the limit is told from a longer one.
    let limit = u64::try_from(CONFIG_LIMIT).unwrap_or(u64::MAX).saturating_add(1);
    let mut config = Vec::new();
    if let Err(error) = io::stdin().lock().take(limit).read_to_end(&mut config) {
        let error = CniError::new(
            Code::Io,
            format!("standard input: {error}"),
            "give the network's configuration on standard input",
        );
        return Outcome { output: error.document(Version::NEWEST), success: false };
    }
    respond(&Variables::of_process(), &config, &|socket, method| call_within(socket, method, TIMEOUT))
}

fn usage() -> CniError {
    CniError::new(
        Code::InvalidEnvironment,
        "this is a CNI plugin and takes no arguments but --version",
        "let a container runtime start it, with CNI_COMMAND in the environment",
    )
}

fn about() -> String {
    let versions = Version::ALL.map(Version::as_str).join(", ");
    format!("juneau-cni {}\nprotocol {}\nCNI {versions}\n", env!("CARGO_PKG_VERSION"), protocol::VERSION,)
}
