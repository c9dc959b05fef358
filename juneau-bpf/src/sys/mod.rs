//! Safe forms of the bpf(2) commands that are needed beside libbpf-rs: exact error numbers, batches, TCX links, queries
//! and memory maps. The only module of the project with `unsafe` in it.
//!
//! Every function takes and returns owned types and checks buffer lengths, so nothing outside can break memory safety.
#![allow(unsafe_code)]

pub(crate) mod file;
pub(crate) mod link;
pub(crate) mod map;
pub(crate) mod mmap;
pub(crate) mod object;
pub(crate) mod prog;

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// libbpf's system call wrappers return a negative error number.
fn check(ret: i32) -> io::Result<i32> {
    if ret < 0 { Err(io::Error::from_raw_os_error(-ret)) } else { Ok(ret) }
}

fn owned(ret: i32) -> io::Result<OwnedFd> {
    let fd = check(ret)?;
    // SAFETY: every caller passes the result of a command that returns a new descriptor, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}

/// A NUL-terminated name in a fixed array of the kernel's.
fn name(bytes: &[std::os::raw::c_char]) -> String {
    let bytes: Vec<u8> = bytes.iter().take_while(|c| **c != 0).map(|c| c.to_ne_bytes()[0]).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Pins a map, program or link at `path` in a bpffs.
pub(crate) fn pin(fd: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: the path is NUL-terminated and outlives the call.
    check(unsafe { libbpf_sys::bpf_obj_pin(fd.as_raw_fd(), path.as_ptr()) }).map(drop)
}

/// Opens what is pinned at `path`.
pub(crate) fn open_pin(path: &Path) -> io::Result<OwnedFd> {
    let path = c_path(path)?;
    // SAFETY: the path is NUL-terminated and outlives the call.
    owned(unsafe { libbpf_sys::bpf_obj_get(path.as_ptr()) })
}

/// `bpf_obj_get_info_by_fd` into a zeroed structure of the kernel's.
///
/// # Safety
/// `T` must be the structure that the kernel fills for the kind of object behind `fd`, valid when zeroed, and its
/// pointer members, if any, stay null.
unsafe fn info<T: Default>(fd: BorrowedFd<'_>) -> io::Result<T> {
    let mut info = T::default();
    let mut length = u32::try_from(size_of::<T>()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: `info` is writable for `length` bytes; that `T` fits is the caller's promise.
    check(unsafe {
        libbpf_sys::bpf_obj_get_info_by_fd(fd.as_raw_fd(), std::ptr::from_mut(&mut info).cast(), &mut length)
    })?;
    Ok(info)
}
