//! Stops the process in the middle of writing, for tests of what the next start makes of it.

use juneau_bpf::failpoint::{Failpoints, Write};
use nix::sys::signal::{Signal, raise};
use std::io;

/// The number of the write to the kernel before which the process kills itself.
const VARIABLE: &str = "JUNEAU_FAILPOINT";

/// The failpoint that the environment asks for, if any.
pub(super) fn from_environment() -> Failpoints {
    let number = std::env::var(VARIABLE).ok().and_then(|text| text.parse::<u64>().ok());
    number.map_or_else(Failpoints::default, |number| Failpoints::new(move |write: &Write<'_>| stop_at(number, write)))
}

fn stop_at(number: u64, write: &Write<'_>) -> io::Result<()> {
    if write.number == number {
        tracing::error!(number, operation = %write.operation, object = write.object, "failpoint: killing myself");
        raise(Signal::SIGKILL)?;
    }
    Ok(())
}
