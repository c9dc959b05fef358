//! Attaching by TCX and counting run time: what libbpf-rs does not wrap.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::error::{Context, Error, Result};

/// A program attached to a device; dropping it detaches the program.
pub type Attachment = OwnedFd;

/// Attaches a program to the ingress of a device of the calling thread's network namespace.
///
/// # Errors
/// [`Error::Io`] on a kernel without TCX (before 6.6) or without such a device.
pub fn attach(program: BorrowedFd<'_>, ifindex: u32) -> Result<Attachment> {
    let what = "attaching a program by TCX";
    let target = i32::try_from(ifindex).map_err(|_| Error::Missing(format!("device {ifindex}")))?;
    // SAFETY: both descriptors are plain numbers to the kernel, and no options are passed.
    let fd = unsafe {
        libbpf_sys::bpf_link_create(program.as_raw_fd(), target, libbpf_sys::BPF_TCX_INGRESS, std::ptr::null())
    };
    own(fd).context(what)
}

/// Lets the kernel count how often and how long programs run, until the answer is dropped.
///
/// # Errors
/// [`Error::Io`] without the right to do so.
pub fn count_run_time() -> Result<OwnedFd> {
    // SAFETY: takes one number, answers a descriptor or a negative error.
    let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
    own(fd).context("counting the run time of programs")
}

fn own(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the kernel made this descriptor for us just now, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
