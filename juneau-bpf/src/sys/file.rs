//! Files, sockets and threads: what std does not offer.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

/// Whether `path` lies in a bpffs.
pub(crate) fn is_bpffs(path: &Path) -> io::Result<bool> {
    let path = super::c_path(path)?;
    // SAFETY: `statfs` is plain data, valid when zeroed.
    let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path is NUL-terminated, `stat` writable.
    if unsafe { libc::statfs(path.as_ptr(), &raw mut stat) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // BPF_FS_MAGIC, linux/magic.h.
    Ok(stat.f_type == 0xcafe_4a11)
}

/// The cookie of the calling thread's network namespace (`SO_NETNS_COOKIE`, Linux 5.14).
pub(crate) fn netns_cookie() -> io::Result<u64> {
    // SAFETY: no pointers; the result is checked.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor, owned by nobody else.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut cookie = 0_u64;
    let mut length = 8;
    // SAFETY: `cookie` is writable for `length` bytes.
    let ret = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    if ret == 0 { Ok(cookie) } else { Err(io::Error::last_os_error()) }
}

/// The CPUs that the calling thread may run on, in ascending order.
pub(crate) fn allowed_cpus() -> io::Result<Vec<usize>> {
    // SAFETY: `cpu_set_t` is plain data, valid when zeroed.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is writable for its size.
    if unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let max = usize::try_from(libc::CPU_SETSIZE).unwrap_or(1024);
    // SAFETY: every number is below CPU_SETSIZE.
    Ok((0..max).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) }).collect())
}

/// The CPU that the calling thread is on at the moment.
pub(crate) fn current_cpu() -> io::Result<usize> {
    // SAFETY: no pointers.
    let cpu = unsafe { libc::sched_getcpu() };
    usize::try_from(cpu).map_err(|_| io::Error::last_os_error())
}

/// Keeps the calling thread on these CPUs.
pub(crate) fn pin_thread(cpus: &[usize]) -> io::Result<()> {
    let limit = usize::try_from(libc::CPU_SETSIZE).unwrap_or(1024);
    // SAFETY: `cpu_set_t` is plain data, valid when zeroed.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for cpu in cpus.iter().filter(|cpu| **cpu < limit) {
        // SAFETY: `cpu` is below CPU_SETSIZE.
        unsafe { libc::CPU_SET(*cpu, &mut set) };
    }
    // SAFETY: `set` is readable for its size.
    if unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Random bytes of the kernel's.
pub(crate) fn random() -> io::Result<u64> {
    let mut bytes = [0_u8; 8];
    // SAFETY: `bytes` is writable for 8 bytes; so few arrive whole.
    let ret = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if ret == 8 { Ok(u64::from_ne_bytes(bytes)) } else { Err(io::Error::last_os_error()) }
}
