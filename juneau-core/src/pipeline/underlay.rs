//! What the underlay tells about its path MTU.

use super::context::{PathResult, Run, Stop, fault};
use super::{NodeState, Outcome, TableRead};
use crate::flow::FlowTable;
use crate::layout::{Be32, PMTU_FLOOR, PMTU_SECONDS, Pmtu, ipv4, vtep_generation};
use crate::packet::{Ethernet, ICMP_UNREACHABLE, IP_UDP, Icmp, Ipv4, Udp, view};
use crate::verdict::Reason;

const FRAGMENTATION_NEEDED: u8 = 4;

impl<T: TableRead, F: FlowTable, S: NodeState> Run<'_, T, F, S> {
    /// ICMP to our VTEP. It is passed on whatever we make of it.
    pub(super) fn underlay_mtu_told(&mut self) -> Result<Outcome, Stop> {
        let news = match self.quoted_tunnel() {
            Some((vtep, mtu)) => self.learn_mtu(vtep, mtu)?,
            None => false,
        };
        Ok(if news { self.passed_counted(Reason::PmtuUpdate) } else { self.passed() })
    }

    /// The VTEP and the MTU, when it is a 3/4 about a tunnel packet of ours.
    fn quoted_tunnel(&self) -> Option<(Be32, u32)> {
        let (_, rest) = view::<Ethernet>(self.packet.frame)?;
        let (_, rest) = view::<Ipv4>(rest)?;
        let (icmp, rest) = view::<Icmp>(rest)?;
        let (ip, rest) = view::<Ipv4>(rest)?;
        let (udp, _) = view::<Udp>(rest)?;
        let ours = (icmp.kind, icmp.code) == (ICMP_UNREACHABLE, FRAGMENTATION_NEEDED)
            && ip.version() == 4
            && ip.header_length() == Ipv4::LENGTH
            && ip.fragment.get() & Ipv4::OFFSET == 0
            && ip.source == self.config.vtep
            && ip.protocol == IP_UDP
            && udp.destination_port == self.config.vxlan_port;
        ours.then(|| (ip.destination, u32::from(icmp.sequence.get())))
    }

    /// Remembers a path MTU; whether it is news.
    fn learn_mtu(&mut self, address: Be32, mtu: u32) -> PathResult<bool> {
        let Some(vtep) = self.tables.vtep(ipv4(address)).map_err(fault("VTEP"))? else { return Ok(false) };
        let in_force = self.underlay_mtu(address, &vtep)?;
        let mtu = mtu.max(PMTU_FLOOR);
        let learned = in_force < u32::from(vtep.mtu);
        if mtu > in_force || (mtu == in_force && !learned) {
            return Ok(false);
        }
        let pmtu = Pmtu { mtu, expires: self.now.later(self.now.seconds(PMTU_SECONDS)).stamp };
        let kept = self.state.put_pmtu(ipv4(address), &pmtu).map_err(fault("path MTU"))?;
        if !kept || mtu == in_force {
            return Ok(false);
        }
        self.state.advance(vtep_generation(address)).map_err(fault("generation"))?;
        Ok(true)
    }
}
