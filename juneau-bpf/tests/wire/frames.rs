//! Whole frames of a device, with what is pending of them.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockProtocol, SockType, recvmsg, setsockopt, sockopt,
};
use nix::sys::time::TimeVal;

use crate::world::Net;

/// `struct virtio_net_hdr`: how the kernel tells, and is told, what is left to do.
const HEADER: usize = 10;
/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`, `VIRTIO_NET_HDR_F_DATA_VALID`, `VIRTIO_NET_HDR_GSO_TCPV4`.
const NEEDS_SUM: u8 = 1;
const DATA_VALID: u8 = 2;
const TCP_SEGMENTS: u8 = 1;
/// In the status of `struct tpacket_auxdata`.
const STATUS_SUM_VALID: u32 = 1 << 7;

/// What the kernel knows of a frame's checksums (`ip_summed`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sum {
    /// `CHECKSUM_NONE`.
    Unknown,
    /// `CHECKSUM_PARTIAL`.
    Pending,
    /// `CHECKSUM_UNNECESSARY`.
    Checked,
    /// `CHECKSUM_COMPLETE`: the sum of the whole packet.
    Whole,
}

/// What is left to do for a frame that is sent: nothing, unless told.
#[derive(Debug, Clone, Copy, Default)]
pub struct Offloads {
    /// Where a pending checksum begins to count, and where behind that it is written.
    pub pending: Option<(usize, usize)>,
    /// Bytes of payload in each TCP segment to be made of it.
    pub segment: Option<u16>,
}

/// A frame that a device got.
#[derive(Debug)]
pub struct Frame {
    pub bytes: Vec<u8>,
    pub sum: Sum,
    pub segments: bool,
}

/// A packet socket on one device.
pub struct Frames(OwnedFd);

impl Frames {
    pub fn open(net: &Net, device: &str) -> Self {
        let socket = net.enter(|| {
            let (family, flags) = (AddressFamily::Packet, SockFlag::empty());
            let socket = nix::sys::socket::socket(family, SockType::Raw, flags, SockProtocol::EthAll).unwrap();
            let mut all = nix::ifaddrs::getifaddrs().unwrap().filter(|interface| interface.interface_name == device);
            let address = all.find_map(|interface| interface.address?.as_link_addr().copied()).unwrap();
            nix::sys::socket::bind(socket.as_raw_fd(), &address).unwrap();
            socket
        });
        let frames = Self(socket);
        frames.enable(libc::PACKET_VNET_HDR);
        frames.enable(libc::PACKET_AUXDATA);
        frames.patience(Duration::from_secs(20));
        // A stream's worth of frames, none of them lost.
        setsockopt(&frames.0, sockopt::RcvBufForce, &(16 << 20)).unwrap();
        frames
    }

    #[allow(unsafe_code)]
    fn enable(&self, option: libc::c_int) {
        let on: libc::c_int = 1;
        let (fd, length) = (self.0.as_raw_fd(), size_of::<libc::c_int>() as libc::socklen_t);
        // SAFETY: the value is an int of that length and lives until the call returns. nix does not know the options.
        let set = unsafe { libc::setsockopt(fd, libc::SOL_PACKET, option, (&raw const on).cast(), length) };
        assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    }

    pub fn patience(&self, time: Duration) {
        let time = TimeVal::new(time.as_secs() as i64, time.subsec_micros().into());
        setsockopt(&self.0, sockopt::ReceiveTimeout, &time).unwrap();
    }

    pub fn send(&self, frame: &[u8], offloads: Offloads) {
        let mut header = [0; HEADER];
        if let Some((start, field)) = offloads.pending {
            header[0] = NEEDS_SUM;
            header[6..8].copy_from_slice(&(start as u16).to_ne_bytes());
            header[8..10].copy_from_slice(&(field as u16).to_ne_bytes());
        }
        if let Some(segment) = offloads.segment {
            header[1] = TCP_SEGMENTS;
            header[2..4].copy_from_slice(&54_u16.to_ne_bytes());
            header[4..6].copy_from_slice(&segment.to_ne_bytes());
        }
        let sent = nix::sys::uio::writev(&self.0, &[IoSlice::new(&header), IoSlice::new(frame)]).unwrap();
        assert_eq!(sent, HEADER + frame.len());
    }

    /// The next frame, unless the patience ends before.
    pub fn next(&self) -> Option<Frame> {
        let (mut header, mut bytes) = ([0; HEADER], vec![0; 1 << 17]);
        let mut parts = [IoSliceMut::new(&mut header), IoSliceMut::new(&mut bytes)];
        let mut space = nix::cmsg_space!([u8; 64]);
        let message = recvmsg::<()>(self.0.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::empty());
        let (length, status) = match message {
            Err(Errno::EAGAIN) => return None,
            Err(error) => panic!("{error}"),
            Ok(message) => {
                let status = message.cmsgs().unwrap().find_map(|control| match control {
                    ControlMessageOwned::Unknown(unknown) => unknown.data_bytes.first_chunk().copied(),
                    _ => None,
                });
                (message.bytes - HEADER, u32::from_ne_bytes(status.unwrap()))
            }
        };
        bytes.truncate(length);
        let sum = match header[0] {
            flags if flags & NEEDS_SUM != 0 => Sum::Pending,
            flags if flags & DATA_VALID != 0 => Sum::Checked,
            _ if status & STATUS_SUM_VALID != 0 => Sum::Whole,
            _ => Sum::Unknown,
        };
        Some(Frame { bytes, sum, segments: header[1] != 0 })
    }
}
