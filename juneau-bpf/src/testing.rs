//! What unit tests share.

/// Whether this process may use BPF. If not, says so: such a test has shown nothing.
pub(crate) fn privileged() -> bool {
    let may = crate::sys::map::RawMap::create(libbpf_sys::BPF_MAP_TYPE_ARRAY, "jn_test", 4, 4, 1, 0).is_ok();
    if !may {
        eprintln!("SKIPPED 1: needs root and BPF");
    }
    may
}
