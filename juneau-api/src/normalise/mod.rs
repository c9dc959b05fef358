//! From the view to the model: names become numbers, strings become addresses, and what is wrong becomes a named
//! problem.
//!
//! [`normalise`] is pure and never fails. A bad object costs itself and what rests on it alone. Of two objects that
//! claim one thing (a number, an address, a prefix) the older has it, and among those of one age, or of none, the first
//! by name; so a newcomer never disturbs what works.

mod endpoints;
mod networks;
mod nodes;
mod parse;
mod routes;

use crate::view::{Item, Time, View};
use juneau_core::id::{TableId, Vni, VpcId};
use juneau_core::model::{Model, Problem};
use std::collections::BTreeMap;

/// What the steps share.
struct Normaliser<'v> {
    view: &'v View,
    model: Model,
    problems: Vec<Problem>,
    /// Usable VPCs by name.
    vpcs: BTreeMap<&'v str, VpcId>,
    /// Usable route tables by name.
    tables: BTreeMap<&'v str, (TableId, VpcId)>,
    /// Usable Subnets by name.
    subnets: BTreeMap<&'v str, networks::Usable>,
    /// Usable Subnets by VPC.
    subnets_of: BTreeMap<VpcId, Vec<Vni>>,
}

/// The model of a view, and what is wrong with its objects, as the node `node` sees it.
#[must_use]
pub fn normalise(view: &View, node: &str) -> (Model, Vec<Problem>) {
    let mut normaliser = Normaliser {
        view,
        model: Model::default(),
        problems: Vec::new(),
        vpcs: BTreeMap::new(),
        tables: BTreeMap::new(),
        subnets: BTreeMap::new(),
        subnets_of: BTreeMap::new(),
    };
    normaliser.nodes(node);
    normaliser.vpcs();
    normaliser.tables();
    normaliser.subnets();
    normaliser.endpoints();
    normaliser.routes();
    let Normaliser { model, mut problems, .. } = normaliser;
    problems.sort();
    (model, problems)
}

/// A message and a remedy.
type Wrong = (String, String);

/// Says what is wrong.
fn wrong(message: impl Into<String>, remedy: impl Into<String>) -> Wrong {
    (message.into(), remedy.into())
}

impl Normaliser<'_> {
    fn problem<T>(&mut self, object: String, item: &Item<T>, (message, remedy): Wrong) {
        self.problems.push(Problem::new(object, message, remedy).at(item.origin.to_string()));
    }
}

/// Objects by age, then by name: who comes first has what both claim.
fn by_age<K: Ord, T>(objects: &BTreeMap<K, Item<T>>, created: impl Fn(&T) -> Option<&Time>) -> Vec<(&K, &Item<T>)> {
    let mut all: Vec<_> = objects.iter().collect();
    // The sort is stable, and the map is in the order of names. Without a time an object is younger than any with one.
    all.sort_by(|(_, a), (_, b)| {
        let (a, b) = (created(&a.object), created(&b.object));
        a.is_none().cmp(&b.is_none()).then_with(|| a.map(|time| time.0).cmp(&b.map(|time| time.0)))
    });
    all
}

/// `Vpc/red does not exist`, or `cannot be used` when it is there but something is wrong with it.
fn missing<T>(kind: &str, name: &str, objects: &BTreeMap<String, Item<T>>) -> Wrong {
    if objects.contains_key(name) {
        wrong(format!("{kind}/{name} cannot be used"), format!("mend {kind}/{name} first"))
    } else {
        wrong(format!("{kind}/{name} does not exist"), format!("create {kind}/{name}, or name another"))
    }
}

#[cfg(test)]
mod tests;
