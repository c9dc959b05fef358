//! Fragments: the first leaves its ports for the later ones, in a slot of its own scope.

use super::context::{Parsed, Part, Run, Stop, fault};
use super::{NodeState, TableRead};
use crate::flow::FlowTable;
use crate::layout::{FRAGMENT_SECONDS, Fragment, FragmentKey, without_protocol};
use crate::verdict::Reason;

impl<T: TableRead, F: FlowTable, S: NodeState> Run<'_, T, F, S> {
    fn fragment_key(&self, parsed: &Parsed) -> FragmentKey {
        FragmentKey {
            scope: without_protocol(parsed.key.scope),
            slot: self.config.seeds.fragment_slot(
                parsed.key.source,
                parsed.key.destination,
                parsed.id,
                parsed.protocol,
            ),
        }
    }

    /// Takes a later fragment's ports from the slot of its first. The key's scope is known.
    pub(super) fn recall_fragment(&mut self, parsed: &mut Parsed) -> Result<(), Stop> {
        let key = self.fragment_key(parsed);
        let first = self.state.fragment(&key).map_err(fault("first fragment"))?;
        let own = |first: &Fragment| {
            first.scope == key.scope
                && first.source == parsed.key.source
                && first.destination == parsed.key.destination
                && first.id == parsed.id
                && first.protocol == parsed.protocol
                && self.now.since(first.stamp) <= self.now.seconds(FRAGMENT_SECONDS)
        };
        let first = first.filter(own).ok_or(Stop::Drop(Reason::FragmentNoFirst))?;
        parsed.key.source_port = first.source_port;
        parsed.key.destination_port = first.destination_port;
        Ok(())
    }

    /// Remembers a first fragment that is about to be delivered.
    pub(super) fn remember_fragment(&mut self, parsed: &Parsed) -> Result<(), Stop> {
        if parsed.part != Part::First {
            return Ok(());
        }
        let key = self.fragment_key(parsed);
        let fragment = Fragment {
            scope: key.scope,
            source: parsed.key.source,
            destination: parsed.key.destination,
            id: parsed.id,
            protocol: parsed.protocol,
            zero1: 0,
            source_port: parsed.key.source_port,
            destination_port: parsed.key.destination_port,
            stamp: self.now.stamp,
        };
        if self.state.put_fragment(&key, &fragment).map_err(fault("first fragment"))? {
            Ok(())
        } else {
            Err(Stop::Drop(Reason::FragmentMapFull))
        }
    }
}
