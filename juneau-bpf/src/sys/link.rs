//! Links and what is attached where.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// Where a link sits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// TCX; ifindex 0 once the device is gone.
    Tcx {
        ifindex: u32,
    },
    Cgroup {
        id: u64,
    },
    Other {
        kind: u32,
    },
}

/// What the kernel says of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LinkInfo {
    pub(crate) id: u32,
    pub(crate) program: u32,
    pub(crate) target: Target,
}

/// Creates a TCX link on the device's ingress, first in the chain.
pub(crate) fn create_tcx(program: BorrowedFd<'_>, ifindex: u32) -> io::Result<OwnedFd> {
    let ifindex = i32::try_from(ifindex).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
        // Without a relative program: before all others.
        flags: libbpf_sys::BPF_F_BEFORE,
        ..Default::default()
    };
    // SAFETY: the options outlive the call and hold no pointers.
    super::owned(unsafe {
        libbpf_sys::bpf_link_create(program.as_raw_fd(), ifindex, libbpf_sys::BPF_TCX_INGRESS, &raw const options)
    })
}

/// Creates a link on the egress of a cgroup's sockets, beside those of others.
pub(crate) fn create_cgroup(program: BorrowedFd<'_>, cgroup: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    // SAFETY: the options outlive the call and hold no pointers.
    super::owned(unsafe {
        libbpf_sys::bpf_link_create(
            program.as_raw_fd(),
            cgroup.as_raw_fd(),
            libbpf_sys::BPF_CGROUP_INET_EGRESS,
            &raw const options,
        )
    })
}

/// Whether the kernel knows TCX (6.6): it looks the device up, and says so; older ones refuse the attach type.
pub(crate) fn tcx_known(program: BorrowedFd<'_>) -> bool {
    match create_tcx(program, i32::MAX.unsigned_abs()) {
        Ok(_) => true,
        Err(error) => error.raw_os_error() != Some(libc::EINVAL),
    }
}

/// Replaces a link's program in one step.
pub(crate) fn update(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: null options are allowed.
    super::check(unsafe { libbpf_sys::bpf_link_update(link.as_raw_fd(), program.as_raw_fd(), std::ptr::null()) })
        .map(drop)
}

/// Ends a link at once, whoever else holds it.
pub(crate) fn detach(link: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the call takes a descriptor and no memory.
    super::check(unsafe { libbpf_sys::bpf_link_detach(link.as_raw_fd()) }).map(drop)
}

pub(crate) fn info(link: BorrowedFd<'_>) -> io::Result<LinkInfo> {
    // SAFETY: the kernel fills `bpf_link_info` for a link and refuses other descriptors; it writes through the
    // structure's pointers only when their lengths are not zero.
    let raw: libbpf_sys::bpf_link_info = unsafe { super::info(link)? };
    let target = match raw.type_ {
        libbpf_sys::BPF_LINK_TYPE_TCX => {
            // SAFETY: the type says which member of the union the kernel wrote; every bit pattern is valid.
            Target::Tcx { ifindex: unsafe { raw.__bindgen_anon_1.tcx.ifindex } }
        }
        libbpf_sys::BPF_LINK_TYPE_CGROUP => {
            // SAFETY: as above.
            Target::Cgroup { id: unsafe { raw.__bindgen_anon_1.cgroup.cgroup_id } }
        }
        kind => Target::Other { kind },
    };
    Ok(LinkInfo { id: raw.id, program: raw.prog_id, target })
}

/// Ids of the programs in a device's TCX ingress chain, in the order in which they run.
pub(crate) fn query_tcx(ifindex: u32) -> io::Result<Vec<u32>> {
    let ifindex = i32::try_from(ifindex).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // The kernel allows 64 programs in a chain (BPF_MPROG_MAX).
    let mut ids = [0_u32; 64];
    let mut options = libbpf_sys::bpf_prog_query_opts {
        sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as libbpf_sys::size_t,
        prog_ids: ids.as_mut_ptr(),
        ..Default::default()
    };
    options.__bindgen_anon_1.count = 64;
    // SAFETY: `prog_ids` is writable for `count` numbers during the call.
    super::check(unsafe { libbpf_sys::bpf_prog_query_opts(ifindex, libbpf_sys::BPF_TCX_INGRESS, &raw mut options) })?;
    // SAFETY: both members of the union are the same number.
    let count = unsafe { options.__bindgen_anon_1.count } as usize;
    Ok(ids.iter().copied().take(count).collect())
}
