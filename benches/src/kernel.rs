//! What of the kernel has no safe wrapper: three commands about programs that libbpf-rs lacks, or has only for programs
//! that it loaded; and the address of a device for a packet socket.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use socket2::{Domain, SockAddr, SockAddrStorage, Socket, Type};

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

/// Where `struct __sk_buff` has `ifindex`, and how much of it a test run needs.
const IFINDEX: usize = 40;
const CONTEXT: usize = 192;

/// Runs a program `repeat` times on a frame that seems to arrive on a device of the calling thread's network
/// namespace; what one run leaves of the frame is the next one's. Answers what the last run returned, and the mean
/// time of one.
///
/// # Errors
/// [`Error::Io`] without such a device, or for a frame that is too short.
pub fn test_run(program: BorrowedFd<'_>, ifindex: u32, frame: &[u8], repeat: u32) -> Result<(u32, Duration)> {
    let mut context = [0_u8; CONTEXT];
    if let Some(place) = context.get_mut(IFINDEX..IFINDEX + 4) {
        place.copy_from_slice(&ifindex.to_ne_bytes());
    }
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
        data_in: frame.as_ptr().cast(),
        data_size_in: length(frame),
        ctx_in: context.as_ptr().cast(),
        ctx_size_in: length(&context),
        repeat: i32::try_from(repeat).unwrap_or(i32::MAX),
        ..Default::default()
    };
    // SAFETY: the options point to memory that outlives the call, with its true sizes, and ask for no output.
    let status = unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    if status < 0 {
        return Err(io::Error::from_raw_os_error(-status)).context("running a program on a packet");
    }
    Ok((options.retval, Duration::from_nanos(options.duration.into())))
}

/// A socket that puts frames on devices of the network namespace in which it was opened, as they are.
pub struct FrameSocket(Socket);

/// A device as the address of a packet socket.
pub struct Device(SockAddr);

impl Device {
    /// The device with an index.
    #[must_use]
    pub fn new(ifindex: u32) -> Self {
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as libc::sa_family_t,
            sll_protocol: 0,
            sll_ifindex: ifindex.cast_signed(),
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        let mut storage = SockAddrStorage::zeroed();
        // SAFETY: an address of any family lies at the start of a storage, which is made to hold it.
        *unsafe { storage.view_as() } = address;
        // SAFETY: the storage holds an address of exactly this length.
        Self(unsafe { SockAddr::new(storage, size_of::<libc::sockaddr_ll>() as libc::socklen_t) })
    }
}

impl FrameSocket {
    /// Opens a socket that receives nothing.
    ///
    /// # Errors
    /// [`Error::Io`] without the right to do so.
    pub fn new() -> Result<Self> {
        Ok(Self(Socket::new(Domain::PACKET, Type::RAW, None).context("a packet socket")?))
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// [`Error::Io`] when the device is down or has no room.
    pub fn send(&self, device: &Device, frame: &[u8]) -> Result<()> {
        self.0.send_to(frame, &device.0).map(drop).context("sending a frame")
    }
}

fn own(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the kernel made this descriptor for us just now, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
