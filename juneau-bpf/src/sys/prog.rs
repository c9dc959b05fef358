//! Programs: what they are, test runs, probes.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use libbpf_sys::bpf_insn;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What the kernel says of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProgramInfo {
    pub(crate) id: u32,
    pub(crate) name: String,
    /// Instructions that the verifier walked through.
    pub(crate) verified: u32,
}

pub(crate) fn info(program: BorrowedFd<'_>) -> io::Result<ProgramInfo> {
    // SAFETY: the kernel fills `bpf_prog_info` for a program and refuses other descriptors; it writes through the
    // structure's pointers only when their lengths are not zero.
    let raw: libbpf_sys::bpf_prog_info = unsafe { super::info(program)? };
    Ok(ProgramInfo { id: raw.id, name: super::name(&raw.name), verified: raw.verified_insns })
}

pub(crate) fn by_id(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    super::owned(unsafe { libbpf_sys::bpf_prog_get_fd_by_id(id) })
}

/// `struct __sk_buff` as far as a test run reads it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, IntoBytes, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Context {
    pub(crate) len: u32,
    pub(crate) pkt_type: u32,
    pub(crate) mark: u32,
    pub(crate) queue_mapping: u32,
    pub(crate) protocol: u32,
    pub(crate) vlan_present: u32,
    pub(crate) vlan_tci: u32,
    pub(crate) vlan_proto: u32,
    pub(crate) priority: u32,
    pub(crate) ingress_ifindex: u32,
    pub(crate) ifindex: u32,
    pub(crate) tc_index: u32,
    pub(crate) cb: [u32; 5],
    /// Fields that a test run wants to be zero.
    pub(crate) zero: [u32; 19],
    pub(crate) flow_keys: u64,
    pub(crate) tstamp: u64,
    pub(crate) wire_len: u32,
    pub(crate) gso_segs: u32,
    pub(crate) sk: u64,
    pub(crate) gso_size: u32,
    pub(crate) tstamp_type: u32,
}

/// What a test run gave back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunOutput {
    pub(crate) retval: u32,
    /// Bytes of the packet as it left.
    pub(crate) length: usize,
    /// Mean time of one run.
    pub(crate) duration: Duration,
}

/// `BPF_PROG_TEST_RUN` on the CPU that the thread is on. `context`: metadata of the packet.
pub(crate) fn test_run(
    program: BorrowedFd<'_>,
    context: Option<&Context>,
    packet: &[u8],
    output: &mut [u8],
    repeat: u32,
) -> io::Result<RunOutput> {
    let too_long = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
        data_in: packet.as_ptr().cast(),
        data_size_in: u32::try_from(packet.len()).map_err(too_long)?,
        data_out: output.as_mut_ptr().cast(),
        data_size_out: u32::try_from(output.len()).map_err(too_long)?,
        repeat: i32::try_from(repeat).map_err(too_long)?,
        ..Default::default()
    };
    if let Some(context) = context {
        options.ctx_in = std::ptr::from_ref(context).cast();
        options.ctx_size_in = u32::try_from(size_of::<Context>()).map_err(too_long)?;
    }
    // SAFETY: every pointer is valid for the length that stands beside it, and outlives the call.
    super::check(unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) })?;
    Ok(RunOutput {
        retval: options.retval,
        length: options.data_size_out as usize,
        duration: Duration::from_nanos(options.duration.into()),
    })
}

const MOV_IMMEDIATE: u8 = 0xb7;
const LOAD_WORD: u8 = 0x61;
const SHIFT_RIGHT: u8 = 0x77;
const JUMP_EQUAL: u8 = 0x15;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

fn insn(code: u8, destination: u8, source: u8, offset: i16, immediate: i32) -> bpf_insn {
    let mut insn = bpf_insn { code, off: offset, imm: immediate, ..Default::default() };
    insn.set_dst_reg(destination);
    insn.set_src_reg(source);
    insn
}

fn load(name: &CStr, program: &[bpf_insn]) -> io::Result<OwnedFd> {
    // SAFETY: name, licence and instructions outlive the call; null options are allowed.
    super::owned(unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_SCHED_CLS,
            name.as_ptr(),
            c"Dual BSD/GPL".as_ptr(),
            program.as_ptr(),
            program.len() as libbpf_sys::size_t,
            std::ptr::null_mut(),
        )
    })
}

/// A program that returns the kernel's jiffies for packets of mark 1, and those / 256 for others.
pub(crate) fn load_clock() -> io::Result<OwnedFd> {
    const JIFFIES: i32 = 118;
    const MARK: i16 = 8;
    load(
        c"jn_clock",
        &[
            insn(LOAD_WORD, 6, 1, MARK, 0),
            insn(CALL, 0, 0, 0, JIFFIES),
            insn(JUMP_EQUAL, 6, 0, 1, 1),
            insn(SHIFT_RIGHT, 0, 0, 0, 8),
            insn(EXIT, 0, 0, 0, 0),
        ],
    )
}

/// Whether `bpf_skb_adjust_room` of this kernel takes `flags` when it shrinks a packet by an IPv4 and a UDP header.
pub(crate) fn adjust_room_takes(flags: u32) -> io::Result<bool> {
    const ADJUST_ROOM: i32 = 50;
    const ROOM_MAC: i32 = 1;
    // adjust_room(context in r1, -28, BPF_ADJ_ROOM_MAC, flags), its result returned.
    let program = load(
        c"jn_probe",
        &[
            insn(MOV_IMMEDIATE, 2, 0, 0, -28),
            insn(MOV_IMMEDIATE, 3, 0, 0, ROOM_MAC),
            insn(MOV_IMMEDIATE, 4, 0, 0, i32::from_ne_bytes(flags.to_ne_bytes())),
            insn(CALL, 0, 0, 0, ADJUST_ROOM),
            insn(EXIT, 0, 0, 0, 0),
        ],
    )?;
    // An IPv4 packet with UDP in it, as adjust_room wants one.
    let mut packet = vec![0_u8; 12];
    packet.extend([0x08, 0x00, 0x45, 0, 0, 114, 0, 0, 0, 0, 64, 17]);
    packet.resize(128, 0);
    let run = test_run(program.as_fd(), None, &packet, &mut [0; 256], 1)?;
    Ok(run.retval == 0)
}

/// Whether programs of this type may call the helper.
pub(crate) fn helper_known(program_type: u32, helper: u32) -> bool {
    // SAFETY: null options are allowed.
    unsafe { libbpf_sys::libbpf_probe_bpf_helper(program_type, helper, std::ptr::null()) == 1 }
}
