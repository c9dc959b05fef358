//! Stops the process in the middle of writing, for tests of what the next start makes of it.

use juneau_bpf::failpoint::{Failpoints, Operation, Write};
use nix::sys::signal::{Signal, raise};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of the write to a map, counted from the start, before which the process kills itself.
const VARIABLE: &str = "JUNEAU_FAILPOINT";

/// The failpoint that the environment asks for, if any.
pub(super) fn from_environment() -> Failpoints {
    let wanted = std::env::var(VARIABLE).ok().and_then(|text| text.parse::<u64>().ok());
    let Some(wanted) = wanted else { return Failpoints::default() };
    let writes = AtomicU64::new(0);
    Failpoints::new(move |write: &Write<'_>| -> io::Result<()> {
        if is_map_write(write.operation) && writes.fetch_add(1, Ordering::Relaxed) + 1 == wanted {
            tracing::error!(number = wanted, operation = %write.operation, object = write.object, "failpoint");
            raise(Signal::SIGKILL)?;
        }
        Ok(())
    })
}

/// Whether an application makes such writes, and loading does not.
fn is_map_write(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::MapUpdate
            | Operation::MapUpdateBatch
            | Operation::MapDelete
            | Operation::MapDeleteBatch
            | Operation::MapWord
    )
}
