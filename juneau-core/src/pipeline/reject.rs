//! Answers: a Pod is told why its packet ends here, by ICMP.

use super::context::{Parsed, Part, Run, Stop, fault};
use super::{NodeState, Outcome, TableRead, parse};
use crate::flow::FlowTable;
use crate::layout::{Be16, Interface, QUOTE_L4_MAX};
use crate::packet::{
    Checksum, ETHERTYPE_IPV4, Ethernet, ICMP_TIME_EXCEEDED, ICMP_UNREACHABLE, IP_ICMP, Icmp, Ipv4, view,
};
use crate::verdict::Reason;
use zerocopy::IntoBytes;

/// CS6 (RFC 2474): what routers say about the network.
const NETWORK_CONTROL: u8 = 0xc0;

/// Type and code of what a Pod is told; `None` for what it is not told.
const fn told(reason: Reason) -> Option<(u8, u8)> {
    match reason {
        Reason::NoRoute => Some((ICMP_UNREACHABLE, 0)),
        Reason::RouteUnreachable | Reason::NoEndpoint => Some((ICMP_UNREACHABLE, 1)),
        Reason::FragmentationNeeded => Some((ICMP_UNREACHABLE, 4)),
        Reason::TtlExceeded => Some((ICMP_TIME_EXCEEDED, 0)),
        _ => None,
    }
}

impl<T: TableRead, F: FlowTable, S: NodeState> Run<'_, T, F, S> {
    /// Answers with an ICMP error, if one may leave (RFC 1812, 4.3.2.7), or drops.
    pub(super) fn reject(
        &mut self,
        interface: &Interface,
        parsed: &Parsed,
        reason: Reason,
        mtu: u16,
    ) -> Result<Outcome, Stop> {
        let drop = Stop::Drop(reason);
        let Some((kind, code)) = told(reason) else { return Err(drop) };
        if parsed.part == Part::Later {
            return Err(drop);
        }
        let limits = self.tables.vpc(interface.vpc_index).map_err(fault("VPC"))?.unwrap_or_default();
        let allowed = self.flows.take_icmp(interface.vpc_index, limits.icmp_limit, self.now);
        if !allowed.map_err(fault("ICMP budget"))? {
            return Err(drop);
        }
        let icmp = Icmp { kind, code, sequence: Be16::new(mtu), ..Icmp::default() };
        let frame = self.icmp_error(interface, parsed, icmp).ok_or(drop)?;
        Ok(self.answer(reason, frame))
    }

    fn icmp_error(&self, interface: &Interface, parsed: &Parsed, mut icmp: Icmp) -> Option<Vec<u8>> {
        let (_, rest) = view::<Ethernet>(self.packet.frame)?;
        let header = rest.get(..Ipv4::LENGTH)?;
        let l4 = parse::layer4(self.packet.frame, parsed);
        let l4 = l4.get(..l4.len().min(QUOTE_L4_MAX as usize))?;
        let length = Ipv4::LENGTH + Icmp::LENGTH + header.len() + l4.len();
        let ethernet = Ethernet {
            destination: interface.mac,
            source: interface.gateway_mac,
            ethertype: Be16::new(ETHERTYPE_IPV4),
        };
        let mut ip = Ipv4 {
            version_length: 0x45,
            tos: NETWORK_CONTROL,
            total_length: Be16::new(length as u16),
            ttl: 64,
            protocol: IP_ICMP,
            source: interface.gateway,
            destination: parsed.key.source,
            ..Ipv4::default()
        };
        ip.set_checksum();
        let sum = Checksum::new().with(icmp.as_bytes()).with(header).with(l4).finish();
        icmp.checksum = Be16::new(sum);
        Some([ethernet.as_bytes(), ip.as_bytes(), icmp.as_bytes(), header, l4].concat())
    }
}
