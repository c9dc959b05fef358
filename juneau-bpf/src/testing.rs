//! What unit tests share.

use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};

static SKIPPED: AtomicU32 = AtomicU32::new(0);

/// Whether this process may use BPF. If not, says so: such a test has shown nothing.
pub(crate) fn privileged() -> bool {
    let may = crate::sys::map::RawMap::create(libbpf_sys::BPF_MAP_TYPE_ARRAY, "jn_test", 4, 4, 1, 0).is_ok();
    if !may {
        let count = SKIPPED.fetch_add(1, Ordering::Relaxed) + 1;
        // Past the test harness, which would keep it to itself.
        let _ = writeln!(std::io::stderr(), "SKIPPED {count}: needs root and BPF");
    }
    may
}
