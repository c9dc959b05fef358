//! A load of its own beside the one that runs: test packets, and explanations.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use juneau_core::layout::{Step, Verdict};
use juneau_core::verdict::Hook;
use zerocopy::{FromBytes, FromZeros};

use crate::attach::program_of;
use crate::dataplane::Dataplane;
use crate::error::{Error, Result};
use crate::failpoint::{Failpoints, Operation};
use crate::map::{Map, Mode};
use crate::object::Loaded;
use crate::sys;
use crate::sys::prog::Context;

/// A packet for a test run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TestPacket<'a> {
    /// The frame, from its Ethernet header on; at least 14 bytes.
    pub bytes: &'a [u8],
    /// The device on which it seems to arrive; it must exist in the calling thread's network namespace.
    pub ifindex: u32,
    /// `skb->mark`.
    pub mark: u32,
    /// Bytes of a GSO segment; 0 for an ordinary packet.
    pub gso_size: u32,
    /// Segments of a GSO packet.
    pub gso_segments: u32,
}

impl<'a> TestPacket<'a> {
    /// An ordinary packet.
    #[must_use]
    pub const fn new(ifindex: u32, bytes: &'a [u8]) -> Self {
        Self { bytes, ifindex, mark: 0, gso_size: 0, gso_segments: 0 }
    }
}

/// What became of a test packet.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Run {
    /// What the program returned: `TC_ACT_*` or `TCX_*`.
    pub returned: i32,
    /// The verdict, as the program wrote it.
    pub verdict: Verdict,
    /// The packet as it left the program.
    pub packet: Vec<u8>,
    /// How the decision was made; only of a load that explains.
    pub steps: Vec<Step>,
    /// Mean time of one run.
    pub duration: Duration,
}

/// Programs with a context of their own over the shared maps. Nothing of it is attached or pinned; it ends with this.
#[derive(Debug)]
pub struct PrivateLoad {
    loaded: Loaded,
    trail: Map<u32, Step>,
}

/// Bytes that a program may add to a packet.
const HEADROOM: usize = 256;

impl Dataplane {
    /// Programs that answer "what would happen to this packet, here and now, and why": the same object over the same
    /// maps, with everything removed that writes or sends.
    ///
    /// # Errors
    /// [`Error::Load`], the kernel's.
    pub fn explainer(&self) -> Result<PrivateLoad> {
        PrivateLoad::new(self.load_beside(|config| config.dry_run = 1)?)
    }

    /// Programs for test packets that leave their traces in the shared maps like real ones.
    ///
    /// # Errors
    /// [`Error::Load`], the kernel's.
    pub fn test_load(&self) -> Result<PrivateLoad> {
        PrivateLoad::new(self.load_beside(|_| ())?)
    }
}

impl PrivateLoad {
    fn new(loaded: Loaded) -> Result<Self> {
        let trail = Map::new(Arc::clone(loaded.map("jn_trail")?), Failpoints::default())?;
        Ok(Self { loaded, trail })
    }

    /// Runs a hook's program on a packet.
    ///
    /// # Errors
    /// The kernel's: `ENODEV` for a device that does not exist, `EINVAL` for a packet that is too short.
    pub fn run(&self, hook: Hook, packet: &TestPacket<'_>) -> Result<Run> {
        self.run_many(hook, packet, 1)
    }

    /// Runs a hook's program `repeat` times on a packet, each time as it came; for timing.
    ///
    /// # Errors
    /// As [`PrivateLoad::run`].
    pub fn run_many(&self, hook: Hook, packet: &TestPacket<'_>, repeat: u32) -> Result<Run> {
        let name = program_of(hook);
        let error = || Error::kernel(Operation::TestRun, name);
        let program = self.loaded.program(name)?;
        let scratch = self.loaded.map("jn_scratch")?;
        // The context is the CPU's, so the thread must not move between the run and the reading of it.
        let pinned = Pinned::new().map_err(error())?;
        let stride = (scratch.info().value_size as usize).next_multiple_of(8);
        let mut contexts = vec![0_u8; scratch.value_length()];
        scratch.update(&[0; 4], &contexts, 0).map_err(error())?;
        self.clear_trail()?;

        let context = Context {
            mark: packet.mark,
            ifindex: packet.ifindex,
            gso_size: packet.gso_size,
            gso_segs: packet.gso_segments,
            ..Default::default()
        };
        let mut output = vec![0_u8; packet.bytes.len() + HEADROOM];
        let run = sys::prog::test_run(program.fd.as_fd(), Some(&context), packet.bytes, &mut output, repeat)
            .map_err(error())?;
        output.truncate(run.length);

        scratch.lookup(&[0; 4], &mut contexts).map_err(error())?;
        let own = pinned.cpu * stride;
        let lacks = || Error::ObjectLacks { what: "member", name: "struct jn_verdict".to_owned() };
        let bytes = contexts.get(own..own + size_of::<Verdict>()).ok_or_else(lacks)?;
        let verdict = Verdict::read_from_bytes(bytes).map_err(|_| lacks())?;
        Ok(Run {
            returned: i32::from_ne_bytes(run.retval.to_ne_bytes()),
            verdict,
            packet: output,
            steps: self.steps()?,
            duration: run.duration,
        })
    }

    fn clear_trail(&self) -> Result<()> {
        for index in 0..self.trail.capacity() {
            if self.trail.get(&index)?.is_none_or(|step| step.stage == 0) {
                break;
            }
            self.trail.put(&index, &Step::new_zeroed(), Mode::Any)?;
        }
        Ok(())
    }

    fn steps(&self) -> Result<Vec<Step>> {
        let mut steps = Vec::new();
        for index in 0..self.trail.capacity() {
            match self.trail.get(&index)? {
                Some(step) if step.stage != 0 => steps.push(step),
                _ => break,
            }
        }
        Ok(steps)
    }
}

/// The calling thread stays on one CPU until this is dropped.
struct Pinned {
    cpu: usize,
    before: Vec<usize>,
}

impl Pinned {
    fn new() -> std::io::Result<Self> {
        let before = sys::file::allowed_cpus()?;
        let cpu = sys::file::current_cpu()?;
        sys::file::pin_thread(&[cpu])?;
        Ok(Self { cpu, before })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Err(error) = sys::file::pin_thread(&self.before) {
            tracing::warn!(%error, "the thread stays on one CPU");
        }
    }
}
