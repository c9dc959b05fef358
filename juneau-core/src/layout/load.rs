//! What belongs to one load of the programs: configuration, verdict, explanation; and events.

use super::{Be16, Be32, FlowKey, mirror};

mirror! {
    /// Configuration of one load (read-only data).
    Config = "jn_config" {
        /// `ABI`.
        abi: u32,
        /// 1: explain; nothing shared is written.
        dry_run: u32,
        /// This node's address on the underlay.
        vtep: Be32,
        /// The underlay device.
        underlay_ifindex: u32,
        /// The slow way's device.
        vxlan_ifindex: u32,
        /// UDP port of VXLAN.
        vxlan_port: Be16,
        /// Elements of `jn_vpcs`.
        vpc_capacity: u16,
        /// Jiffies in a second.
        hz: u32,
        /// `CONFIG_*`.
        flags: u32,
        /// First seed of the flow hash; the same in every load that shares flows.
        seed1: u64,
        /// Second seed.
        seed2: u64,
        /// Of the node's network namespace, with `CONFIG_NETNS_COOKIE`.
        netns_cookie: u64,
    }

    /// The hot line (shared).
    Hot = "jn_hot" {
        /// Moves after any generation moved.
        epoch: u32,
        /// Kinds of events that are wanted: bits `1 << EVENT_*`.
        events: u32,
        /// The stamp, with `CONFIG_TEST_CLOCK`.
        clock: u32,
        /// Drops are sampled: those whose random number has none of these bits.
        sample: u32,
        /// Padding.
        zero: [u32; 12],
    }

    /// A sampled event.
    Event = "jn_event" {
        /// Nanoseconds of `CLOCK_MONOTONIC`.
        time: u64,
        /// `EVENT_*`.
        kind: u32,
        /// The hook's number.
        hook: u32,
        /// The reason's number.
        reason: u32,
        /// The interface where the packet was seen.
        ifindex: u32,
        /// The packet's key.
        key: FlowKey,
        /// The VPC.
        vpc: u32,
        /// The packet's length.
        length: u32,
    }

    /// The verdict as a program writes it; [`crate::verdict::Verdict`] is its typed form.
    Verdict = "jn_verdict" {
        /// The action's number.
        action: u32,
        /// The reason's number.
        reason: u32,
        /// 1: an answer leaves in the packet's stead.
        answered: u32,
        /// Target interface.
        ifindex: u32,
        /// Target node.
        vtep: Be32,
        /// VNI to send with.
        vni: u32,
        /// The hook's number.
        hook: u32,
        /// 1: decided by the stages of a miss.
        slow: u32,
    }

    /// A step of an explanation.
    Step = "jn_step" {
        /// `STAGE_*`.
        stage: u32,
        /// A value of the stage: reason, route kind, egress kind.
        code: u32,
        /// What was looked up or found.
        a: u32,
        /// What was looked up or found.
        b: u32,
        /// What was looked up or found.
        c: u32,
        /// What was looked up or found.
        d: u32,
    }
}

impl Verdict {
    /// The typed form; `None` when a number is unknown.
    #[must_use]
    pub fn decode(&self) -> Option<crate::verdict::Verdict> {
        Some(crate::verdict::Verdict {
            action: crate::verdict::Action::from_number(self.action)?,
            reason: crate::verdict::Reason::from_number(self.reason)?,
            answered: self.answered != 0,
            ifindex: self.ifindex,
            vtep: super::ipv4(self.vtep),
            vni: self.vni,
            slow: self.slow != 0,
        })
    }
}
