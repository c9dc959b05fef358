//! What tests ask of an agent by its environment: to stop in the middle of writing, so that they see what the next start
//! makes of it; to be one of another release, with another ABI.

use juneau_bpf::failpoint::{Failpoints, Operation, Write};
use nix::sys::signal::{Signal, raise};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of the write to a map, counted from the start, before which the process kills itself.
const VARIABLE: &str = "JUNEAU_FAILPOINT";

/// The number of the ABI under which programs and maps are pinned, in the place of this release's.
const ABI_VARIABLE: &str = "JUNEAU_TEST_ABI";

/// The ABI that the environment asks for, if any. Only tests' builds hear it: what is pinned under a number must have the
/// layouts of that number.
pub(super) fn abi_from_environment() -> Option<u32> {
    let wanted = cfg!(debug_assertions).then(|| std::env::var(ABI_VARIABLE).ok()).flatten()?;
    wanted.parse().ok()
}

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
