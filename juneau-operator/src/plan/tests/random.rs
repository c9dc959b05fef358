//! Random histories: two operators, each with a view that is behind, each stopped between any two writes. No number and
//! no address ever has two holders, and in the end all is as if nothing had happened.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeSet, VecDeque};

#[derive(Debug, Clone)]
enum Event {
    /// A Pod is there, of this number and incarnation.
    Pod(u8, bool),
    /// It is gone.
    PodGone(u8),
    /// A tenant is there.
    Tenant(u8),
    /// A user deletes its Subnet, or its Vpc.
    DeleteSubnet(u8),
    DeleteVpc(u8),
    /// A hand takes away an object of the operator's: which kind, and which of them.
    TornOut(u8, u8),
    /// An operator looks: how far behind its watch of each kind is.
    Look(bool, [u8; 11]),
    /// It makes this many writes of its last plan.
    Write(bool, u8),
    /// It is killed.
    Killed(bool),
    /// Seconds pass.
    Time(u8),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0_u8..14, any::<bool>()).prop_map(|(n, stable)| Event::Pod(n, stable)),
        4 => (0_u8..14).prop_map(Event::PodGone),
        2 => (0_u8..3).prop_map(Event::Tenant),
        1 => (0_u8..3).prop_map(Event::DeleteSubnet),
        1 => (0_u8..3).prop_map(Event::DeleteVpc),
        1 => (0_u8..3, any::<u8>()).prop_map(|(kind, n)| Event::TornOut(kind, n)),
        12 => (any::<bool>(), prop::array::uniform11(0_u8..3)).prop_map(|(who, behind)| Event::Look(who, behind)),
        24 => (any::<bool>(), 1_u8..6).prop_map(|(who, count)| Event::Write(who, count)),
        2 => any::<bool>().prop_map(Event::Killed),
        4 => (0_u8..4).prop_map(Event::Time),
    ]
}

const TENANTS: [&str; 3] = ["red", "blue", "green"];

impl Cluster {
    fn happens(&mut self, event: &Event) {
        let there = |cluster: &Self, kind, name: &str| cluster.exists(kind, name);
        match event {
            Event::Pod(n, stable) => {
                let namespace = TENANTS[usize::from(n % 3)];
                let owners = json!([{"apiVersion": "apps/v1", "kind": if *stable { "StatefulSet" } else { "ReplicaSet" },
                    "name": "x", "uid": "x", "controller": true}]);
                let annotations = json!({"juneau.loutres.me/subnet": namespace});
                let uid = format!("{n}-{}", self.now.as_second());
                if !there(self, Kind::Pod, &format!("{namespace}/p{n}")) {
                    self.pod_of(namespace, &format!("p{n}"), &uid, annotations, owners);
                }
            }
            Event::PodGone(n) => {
                self.objects.remove(Kind::Pod, &ObjectName::new(TENANTS[usize::from(n % 3)], format!("p{n}")));
            }
            Event::Tenant(n) => {
                let name = TENANTS[usize::from(*n)];
                if !there(self, Kind::Vpc, name) {
                    let uid = format!("vpc-{name}-{}", self.now.as_second());
                    self.put(json!({"apiVersion": JUNEAU, "kind": "Vpc", "metadata": {"name": name, "uid": uid}, "spec": {}}));
                }
                if !there(self, Kind::Subnet, name) {
                    let (uid, spec) = (
                        format!("subnet-{name}-{}", self.now.as_second()),
                        json!({"vpc": name, "cidr": "10.0.0.0/28"}),
                    );
                    self.put(json!({"apiVersion": JUNEAU, "kind": "Subnet", "metadata": {"name": name, "uid": uid}, "spec": spec}));
                }
            }
            Event::DeleteSubnet(n) | Event::DeleteVpc(n) => {
                let kind = if matches!(event, Event::DeleteVpc(_)) { Kind::Vpc } else { Kind::Subnet };
                if there(self, kind, TENANTS[usize::from(*n)]) {
                    self.delete(kind, TENANTS[usize::from(*n)]);
                }
            }
            Event::TornOut(kind, n) => {
                let kind = [Kind::NetworkEndpoint, Kind::NetworkInterface, Kind::AllocationPool][usize::from(*kind)];
                let all = self.objects.view().all(kind);
                if let Some(object) = all.get(usize::from(*n) % all.len().max(1)) {
                    self.objects.remove(kind, &object.name());
                }
            }
            Event::Time(seconds) => self.sleep(i64::from(*seconds)),
            Event::Look(..) | Event::Write(..) | Event::Killed(_) => {}
        }
    }

    /// What exists and how it is, but for numbers, addresses and times.
    fn shape(&self) -> BTreeSet<String> {
        let view = self.objects.view();
        let mut shape = BTreeSet::new();
        for kind in Kind::ALL {
            if matches!(kind, Kind::AllocationLease) {
                continue;
            }
            for object in view.all(kind) {
                let (ready, reason, _) = self.ready(kind, &object.name().to_string());
                shape.insert(format!("{kind}/{} {ready} {reason}", object.name()));
            }
        }
        for lease in view.leases.values() {
            assert!(view.claims.contains_key(&lease.spec.claim_ref.name), "{:?} is left", lease.metadata.name);
        }
        shape
    }
}

/// A view whose kinds were seen at different times.
fn mixed(history: &VecDeque<View>, behind: &[u8; 11]) -> View {
    let mut view = View::default();
    for (kind, behind) in Kind::ALL.into_iter().zip(behind) {
        let seen = &history[usize::from(*behind).min(history.len() - 1)];
        for object in seen.all(kind) {
            view.insert(object);
        }
    }
    view
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if std::env::var_os("JUNEAU_LONG").is_some() { 5000 } else { 150 }, ..ProptestConfig::default() })]
    #[test]
    fn nothing_is_given_twice_and_the_end_is_the_same(events in prop::collection::vec(event(), 1..150)) {
        let mut cluster = Cluster::new();
        cluster.config.settle = Duration::from_secs(10);
        let mut undisturbed = cluster.clone();
        let mut plans: [VecDeque<Change>; 2] = [VecDeque::new(), VecDeque::new()];
        let mut memories = [Memory::default(), Memory::default()];
        let mut history = VecDeque::new();
        for event in &events {
            cluster.happens(event);
            match event {
                Event::Look(who, behind) if !history.is_empty() => {
                    let view = mixed(&history, behind);
                    let plan = planned(&mut memories[usize::from(*who)], &view, &cluster.config, cluster.now);
                    plans[usize::from(*who)] = plan.changes.into();
                }
                Event::Write(who, count) => {
                    for _ in 0..*count {
                        if let Some(change) = plans[usize::from(*who)].pop_front() {
                            // A refusal is what a paused writer gets.
                            let _ = cluster.apply(&change);
                            cluster.assert_unique();
                        }
                    }
                }
                Event::Killed(who) => {
                    plans[usize::from(*who)].clear();
                    memories[usize::from(*who)] = Memory::default();
                }
                _ => {}
            }
            history.push_front(cluster.objects.view().clone());
            history.truncate(3);
        }
        // What two paused writers still had to say.
        for change in plans.into_iter().flatten() {
            let _ = cluster.apply(&change);
            cluster.assert_unique();
        }
        for event in &events {
            undisturbed.happens(event);
            undisturbed.settle();
        }
        // Whether a deletion had to wait for a Pod depends on who was faster. Let all of them end, and begin again.
        let deleted: BTreeSet<u8> = events
            .iter()
            .filter_map(|event| match event {
                Event::DeleteSubnet(n) | Event::DeleteVpc(n) => Some(*n),
                _ => None,
            })
            .collect();
        for cluster in [&mut cluster, &mut undisturbed] {
            for round in 0..4 {
                cluster.sleep(3600);
                cluster.settle();
                cluster.assert_unique();
                for n in &deleted {
                    match round {
                        0 => (0..14).filter(|pod| pod % 3 == *n).for_each(|pod| cluster.happens(&Event::PodGone(pod))),
                        1 => cluster.happens(&Event::DeleteSubnet(*n)),
                        2 => cluster.happens(&Event::DeleteVpc(*n)),
                        _ => cluster.happens(&Event::Tenant(*n)),
                    }
                }
            }
            cluster.settle();
            cluster.sleep(60);
            cluster.settle();
            cluster.assert_unique();
            prop_assert!(plan(cluster.objects.view(), &cluster.config, cluster.now).changes.is_empty());
        }
        prop_assert_eq!(cluster.shape(), undisturbed.shape());
    }
}
