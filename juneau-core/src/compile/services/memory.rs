//! What is known of the last time: which Services changed since, and what they touch.

use super::build::{Built, Step, Used};
use super::{Limits, ServiceTables};
use crate::id::VpcId;
use crate::model::{Problem, Service};
use core::cmp::Ordering;
use core::net::{IpAddr, Ipv4Addr};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The last result, and what it was made of.
#[derive(Debug, Default)]
pub(in crate::compile) struct Memory {
    result: ServiceTables,
    /// Every Service of the model, those of other nodes' VPCs among them.
    services: BTreeMap<Arc<str>, Known>,
    /// VPCs whose Services are in the result.
    here: BTreeSet<VpcId>,
    limits: Option<Limits>,
    /// Services here by their addresses: those that share one may stand in each other's way.
    by_address: BTreeSet<(VpcId, Ipv4Addr, Arc<str>)>,
    used: Used,
    problems: BTreeMap<Arc<str>, Vec<Problem>>,
    /// Services that lack a number or slots: what others free is theirs.
    starved: BTreeSet<Arc<str>>,
}

/// A Service, and what it has in the result.
#[derive(Debug)]
struct Known {
    service: Arc<Service>,
    built: Box<[Built]>,
}

impl Memory {
    /// The tables for these Services after `previous`.
    pub(super) fn update(
        &mut self,
        services: &BTreeMap<String, Arc<Service>>,
        here: BTreeSet<VpcId>,
        previous: &ServiceTables,
        limits: Limits,
    ) -> &ServiceTables {
        let resumes = self.limits == Some(limits) && self.result == *previous;
        if !resumes {
            *self = Self { limits: Some(limits), ..Self::default() };
        }
        let mut dirty = self.changed(services, &here);
        dirty.extend(self.starved.iter().cloned());
        self.spread(&mut dirty, services, &here);
        let mut step = if resumes {
            Step::resume(previous, core::mem::take(&mut self.used), limits)
        } else {
            Step::start(previous, limits)
        };
        for name in &dirty {
            self.problems.remove(name);
            self.starved.remove(name);
            if let Some(Known { service, built }) = self.services.remove(name) {
                step.forget(&service, &built);
                for address in ipv4_addresses(&service) {
                    self.by_address.remove(&(service.vpc, address, Arc::clone(name)));
                }
            }
        }
        self.here = here;
        for name in &dirty {
            let Some(service) = services.get(&**name) else { continue };
            let mut built = Box::default();
            if self.here.contains(&service.vpc) {
                let outcome = step.build(service, |address, number| self.holder(service.vpc, address, number));
                built = outcome.built;
                if !outcome.problems.is_empty() {
                    self.problems.insert(Arc::clone(name), outcome.problems);
                }
                if outcome.starved {
                    self.starved.insert(Arc::clone(name));
                }
                for address in ipv4_addresses(service) {
                    self.by_address.insert((service.vpc, address, Arc::clone(name)));
                }
            }
            self.services.insert(Arc::clone(name), Known { service: Arc::clone(service), built });
        }
        (self.result, self.used) = step.finish();
        &self.result
    }

    /// What is wrong with Services.
    pub(super) fn problems(&self) -> impl Iterator<Item = &Problem> {
        self.problems.values().flatten()
    }

    /// Services that are new, gone, or other than before, or whose VPC came or went.
    fn changed(&mut self, services: &BTreeMap<String, Arc<Service>>, here: &BTreeSet<VpcId>) -> BTreeSet<Arc<str>> {
        let mut changed = BTreeSet::new();
        let moved: BTreeSet<VpcId> = self.here.symmetric_difference(here).copied().collect();
        let mut wanted = services.iter().peekable();
        let mut known = self.services.iter_mut().peekable();
        loop {
            let order = match (wanted.peek(), known.peek()) {
                // The same object: its name need not be looked at.
                (Some((_, new)), Some((_, old))) if Arc::ptr_eq(new, &old.service) => Ordering::Equal,
                (Some((new, _)), Some((old, _))) => (***new).cmp(&***old),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => break,
            };
            let new = wanted.next_if(|_| order.is_le());
            let old = known.next_if(|_| order.is_ge());
            match (new, old) {
                (Some((_, new)), Some((name, old))) => {
                    if !Arc::ptr_eq(new, &old.service) {
                        if **new == *old.service {
                            old.service = Arc::clone(new);
                        } else {
                            changed.insert(Arc::clone(name));
                        }
                    }
                    if !moved.is_empty() && moved.contains(&new.vpc) {
                        changed.insert(Arc::clone(name));
                    }
                }
                (Some((name, _)), None) => {
                    changed.insert(Arc::from(name.as_str()));
                }
                (None, Some((name, _))) => {
                    changed.insert(Arc::clone(name));
                }
                (None, None) => break,
            }
        }
        changed
    }

    /// Adds the Services that share an address with one that changed, as it was or as it is.
    fn spread(
        &self,
        dirty: &mut BTreeSet<Arc<str>>,
        services: &BTreeMap<String, Arc<Service>>,
        here: &BTreeSet<VpcId>,
    ) {
        let mut others = Vec::new();
        for name in dirty.iter() {
            let old = self.services.get(name).map(|known| &known.service);
            let new = services.get(&**name).filter(|service| here.contains(&service.vpc));
            for service in old.into_iter().chain(new) {
                for address in ipv4_addresses(service) {
                    others.extend(self.at(service.vpc, address).cloned());
                }
            }
        }
        dirty.extend(others);
    }

    /// Names of the Services at an address.
    fn at(&self, vpc: VpcId, address: Ipv4Addr) -> impl Iterator<Item = &Arc<str>> {
        let from = self.by_address.range((vpc, address, Arc::from(""))..);
        from.take_while(move |(v, a, _)| (*v, *a) == (vpc, address)).map(|(_, _, name)| name)
    }

    /// The Service at an address whose port has this number.
    fn holder(&self, vpc: VpcId, address: Ipv4Addr, number: u32) -> Option<String> {
        let mut names = self.at(vpc, address);
        let has = |name: &&Arc<str>| {
            self.services.get(*name).is_some_and(|known| known.built.iter().any(|port| port.service == number))
        };
        names.find(has).map(ToString::to_string)
    }
}

/// The addresses that can be programmed.
pub(super) fn ipv4_addresses(service: &Service) -> impl Iterator<Item = Ipv4Addr> {
    service.addresses.iter().filter_map(|address| match address {
        IpAddr::V4(address) => Some(*address),
        IpAddr::V6(_) => None,
    })
}
