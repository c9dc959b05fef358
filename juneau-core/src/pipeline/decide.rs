//! What a decision rests on: the generations in force, and the tuple that opened the flow.

use super::context::{Parsed, PathResult, Run, fault};
use super::{NodeState, TableRead};
use crate::flow::FlowTable;
use crate::layout::{
    Be16, Be32, FLOW_NAT, FLOW_REPLY, Flow, FlowKey, GEN_NO_VTEP, GEN_NODE, endpoint_generation, table_generation,
};
use crate::packet::{IP_SCTP, IP_TCP, IP_UDP};

/// Generations as read before the tables that they stand for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Basis {
    epoch: u32,
    slots: [u32; 4],
    values: [u32; 5],
    settled: bool,
}

impl Basis {
    /// Writes the basis into a record. What was decided while a change went on is never current.
    pub(super) fn put(&self, flow: &mut Flow) {
        flow.epoch = self.epoch.wrapping_sub(u32::from(!self.is_settled()));
        flow.generation = self.slots;
        flow.value = self.values;
    }

    /// No change goes on of what was decided by.
    pub(super) const fn is_settled(&self) -> bool {
        self.settled
    }
}

/// The tuple of the direction that opened the flow.
#[derive(Debug, Clone, Copy)]
pub(super) struct Original {
    pub(super) source: Be32,
    pub(super) destination: Be32,
    /// The destination port that policy sees; 0 where there is none.
    pub(super) port: Be16,
    /// This packet is of the other direction.
    pub(super) reply: bool,
}

impl Original {
    pub(super) fn of(parsed: &Parsed, record: Option<&Flow>) -> Self {
        let reply = record.is_some_and(|record| record.has(FLOW_REPLY));
        let key = if reply { parsed.key.reversed() } else { parsed.key };
        // A translated flow is judged by its ends, wherever it was addressed to and whoever it spoke as.
        let key = match record.filter(|record| record.has(FLOW_NAT)) {
            Some(record) if reply => FlowKey { source: record.peer.source, ..key },
            Some(record) => {
                FlowKey { destination: record.peer.source, destination_port: record.peer.source_port, ..key }
            }
            None => key,
        };
        let port = match parsed.protocol {
            IP_TCP | IP_UDP | IP_SCTP => key.destination_port,
            _ => Be16::ZERO,
        };
        Self { source: key.source, destination: key.destination, port, reply }
    }
}

impl<T: TableRead, F: FlowTable, S: NodeState> Run<'_, T, F, S> {
    /// Reads the epoch, then the generations of both ends, of the table, and the node's.
    pub(super) fn basis(&self, vpc: u32, original: &Original, table: u32) -> PathResult<Basis> {
        let epoch = self.state.epoch().map_err(fault("epoch"))?;
        let slots = [
            endpoint_generation(vpc, original.source),
            endpoint_generation(vpc, original.destination),
            table_generation(table),
            GEN_NO_VTEP,
        ];
        let mut basis = Basis { epoch, slots, values: [0; 5], settled: true };
        for (value, slot) in basis.values.iter_mut().zip(slots.into_iter().chain([GEN_NODE])) {
            *value = self.state.generation(slot).map_err(fault("generation"))?;
        }
        basis.settled = basis.values.iter().all(|value| value & 1 == 0);
        Ok(basis)
    }

    /// Notes the generation of a VTEP.
    pub(super) fn note_vtep(&self, basis: &mut Basis, slot: u32) -> PathResult<()> {
        self.note(basis, 3, slot)
    }

    /// Notes the generation of the endpoint behind a translation, instead of the address that it is met at.
    pub(super) fn note_destination(&self, basis: &mut Basis, slot: u32) -> PathResult<()> {
        self.note(basis, 1, slot)
    }

    fn note(&self, basis: &mut Basis, index: usize, slot: u32) -> PathResult<()> {
        let value = self.state.generation(slot).map_err(fault("generation"))?;
        if let (Some(own), Some(held)) = (basis.slots.get_mut(index), basis.values.get_mut(index)) {
            *own = slot;
            *held = value;
        }
        basis.settled &= value & 1 == 0;
        Ok(())
    }
}
