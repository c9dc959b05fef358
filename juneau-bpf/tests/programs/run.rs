//! What a test run gave, and what it shall have given.

use juneau_core::layout::{Verdict, ipv4};
use juneau_core::verdict::{Action, Reason};

use crate::lab::OTHER_VTEP;
use crate::topology::Pod;

/// What a run gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    pub code: u32,
    pub action: Action,
    pub reason: Reason,
    pub verdict: Verdict,
    pub bytes: Vec<u8>,
}

impl Run {
    #[track_caller]
    pub fn dropped(&self, reason: Reason) {
        assert_eq!((self.action, self.reason), (Action::Drop, reason), "{:?}", self.verdict);
    }

    #[track_caller]
    pub fn answered(&self, reason: Reason) {
        assert_eq!((self.action, self.reason), (Action::Answer, reason), "{:?}", self.verdict);
        assert_eq!(self.verdict.answered, 1);
    }

    #[track_caller]
    pub fn passed(&self) {
        assert_eq!((self.action, self.reason), (Action::Pass, Reason::Ok), "{:?}", self.verdict);
    }

    /// Delivered into a Pod of this node.
    #[track_caller]
    pub fn delivered(&self, pod: Pod) -> &Self {
        assert_eq!((self.action, self.reason), (Action::Peer, Reason::Ok), "{:?}", self.verdict);
        assert_eq!((self.verdict.ifindex, self.verdict.vni), (pod.ifindex, 0));
        self
    }

    #[track_caller]
    pub fn encapsulated(&self, vni: u32) -> &Self {
        assert_eq!((self.action, self.reason), (Action::Encap, Reason::Ok), "{:?}", self.verdict);
        assert_eq!((ipv4(self.verdict.vtep), self.verdict.vni, self.verdict.ifindex), (OTHER_VTEP, vni, 0));
        self
    }

    #[track_caller]
    pub fn by_device(&self, vni: u32) -> &Self {
        assert_eq!((self.action, self.reason), (Action::Device, Reason::Ok), "{:?}", self.verdict);
        assert_eq!((ipv4(self.verdict.vtep), self.verdict.vni, self.verdict.ifindex), (OTHER_VTEP, vni, 0));
        self
    }

    #[track_caller]
    pub fn slow(&self, slow: bool) -> &Self {
        assert_eq!(self.verdict.slow != 0, slow, "{:?}", self.verdict);
        self
    }
}
