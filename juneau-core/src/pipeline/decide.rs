//! What a decision rests on: the generations in force, and the tuple that opened the flow.

use super::context::{Parsed, PathResult, Run, fault};
use super::{NodeState, TableRead};
use crate::flow::FlowTable;
use crate::layout::{Be16, Be32, FLOW_REPLY, Flow, GEN_NO_VTEP, GEN_NODE, endpoint_generation, table_generation};
use crate::packet::{IP_TCP, IP_UDP};

/// Generations as read before the tables that they stand for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Basis {
    epoch: u32,
    slots: [u32; 4],
    values: [u32; 5],
}

impl Basis {
    /// Writes the basis into a record. What was decided while a change went on is never current.
    pub(super) fn put(&self, flow: &mut Flow) {
        flow.epoch = self.epoch.wrapping_sub(u32::from(!self.is_settled()));
        flow.generation = self.slots;
        flow.value = self.values;
    }

    /// No change goes on of what was decided by.
    pub(super) fn is_settled(&self) -> bool {
        self.values.iter().all(|value| value & 1 == 0)
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
        let port = match parsed.protocol {
            IP_TCP | IP_UDP => key.destination_port,
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
        let mut basis = Basis { epoch, slots, values: [0; 5] };
        for (value, slot) in basis.values.iter_mut().zip(slots.into_iter().chain([GEN_NODE])) {
            *value = self.state.generation(slot).map_err(fault("generation"))?;
        }
        Ok(basis)
    }

    /// Notes the generation of a VTEP.
    pub(super) fn note_vtep(&self, basis: &mut Basis, slot: u32) -> PathResult<()> {
        basis.slots[3] = slot;
        basis.values[3] = self.state.generation(slot).map_err(fault("generation"))?;
        Ok(())
    }
}
