//! The numbers of VPCs on this node.

use super::Compilation;
use crate::id::{VpcId, VpcIndex};
use crate::layout::Vpc;
use crate::model::Problem;
use crate::tables::{Table, Tables};
use std::collections::{BTreeMap, BTreeSet};

impl Compilation<'_> {
    /// Gives every VPC of this node its number. A VPC without one is not programmed.
    pub(super) fn number_vpcs(&mut self, here: &BTreeSet<VpcId>) -> BTreeMap<VpcId, VpcIndex> {
        let capacity = self.node.capacities.get(Table::Vpcs).min(usize::from(u16::MAX) + 1);
        let fits = |index: &VpcIndex| usize::try_from(index.get()).is_ok_and(|index| index < capacity);
        let before = &self.node.vpc_indices;
        let mut taken = BTreeSet::new();
        let mut numbers = BTreeMap::new();
        for vpc in here {
            if let Some(index) = before.get(vpc).filter(|index| fits(index))
                && taken.insert(*index)
            {
                numbers.insert(*vpc, *index);
            }
        }
        // Counters of a number that was another VPC's may still move for a while.
        let used: BTreeSet<VpcIndex> = before.values().copied().collect();
        let indices = || (0..u32::try_from(capacity).unwrap_or(u32::MAX)).filter_map(|n| VpcIndex::new(n).ok());
        let fresh = indices().filter(|index| !used.contains(index) && !taken.contains(index));
        let again = indices().filter(|index| used.contains(index) && !taken.contains(index));
        let mut free = fresh.chain(again);
        for vpc in here {
            if numbers.contains_key(vpc) {
                continue;
            }
            let known = self.model.vpcs.get(vpc);
            let name = known.map_or_else(|| format!("Vpc/{vpc}"), |known| format!("Vpc/{}", known.name));
            let Some(index) = free.next() else {
                self.problems.push(
                    Problem::new(
                        name,
                        format!(
                            "no number is left of the {capacity} for VPCs on this node; its Pods here reach nothing"
                        ),
                        "spread Pods over more nodes, or raise the capacity of jn_vpcs",
                    )
                    .at(known.map(|known| known.origin.as_str()).unwrap_or_default()),
                );
                continue;
            };
            numbers.insert(*vpc, index);
        }
        let limits = self.node.limits;
        for (vpc, index) in &numbers {
            self.tables.vpcs.insert(
                index.get(),
                Vpc {
                    vpc: vpc.get(),
                    flow_limit: limits.flows,
                    embryonic_limit: limits.embryonic,
                    icmp_limit: limits.icmp,
                },
            );
        }
        numbers
    }
}

/// The numbers of VPCs in tables, for [`super::NodeContext::vpc_indices`] of the next compilation.
#[must_use]
pub fn vpc_indices(tables: &Tables) -> BTreeMap<VpcId, VpcIndex> {
    tables
        .vpcs
        .iter()
        .filter_map(|(index, record)| Some((VpcId::new(record.vpc).ok()?, VpcIndex::new(*index).ok()?)))
        .collect()
}
