//! Two operators whose clocks differ by hours, and an API server with a third one.

use super::*;
use crate::view::{Sightings, View};
use proptest::prelude::*;
use std::collections::HashMap;

/// What one operator has seen, and when, by a clock that nobody has.
#[derive(Default)]
struct Observer {
    ahead: i64,
    listed: Option<Timestamp>,
    objects: HashMap<String, Timestamp>,
    marks: HashMap<String, (Timestamp, Timestamp)>,
}

fn later(time: Timestamp, seconds: i64) -> Timestamp {
    Timestamp::from_second(time.as_second() + seconds).unwrap()
}

impl Observer {
    fn look(&mut self, view: &View, now: Timestamp) -> View {
        let first = *self.listed.get_or_insert(now);
        for object in Kind::ALL.into_iter().flat_map(|kind| view.all(kind)) {
            self.objects.entry(object.metadata().uid.clone().unwrap_or_default()).or_insert(now);
        }
        for lease in view.leases.values() {
            let uid = lease.metadata.uid.clone().unwrap();
            match &lease.spec.owner_deletion_timestamp {
                Some(mark) if self.marks.get(&uid).is_some_and(|(known, _)| *known == mark.0) => {}
                Some(mark) => drop(self.marks.insert(uid, (mark.0, now))),
                None => drop(self.marks.remove(&uid)),
            }
        }
        let here = |time: Timestamp| later(time, self.ahead);
        let sightings = Sightings {
            listed: here(first),
            young: self.objects.iter().map(|(uid, seen)| (uid.as_str().into(), here(*seen))).collect(),
            marks: self.marks.iter().map(|(uid, (_, seen))| (uid.as_str().into(), here(*seen))).collect(),
        };
        View { sightings: Some(sightings), ..view.clone() }
    }

    /// Plans and writes until there is nothing to do at this moment.
    fn works(&mut self, cluster: &mut Cluster) {
        for _ in 0..40 {
            let view = self.look(cluster.objects.view(), cluster.now);
            let plan = planned(&mut cluster.memory, &view, &cluster.config, later(cluster.now, self.ahead));
            for change in &plan.changes {
                cluster.apply(change).unwrap_or_else(|refusal| panic!("{change}: {refusal}"));
            }
            if plan.changes.is_empty() {
                return;
            }
        }
        panic!("it does not end");
    }
}

#[derive(Debug, Clone)]
enum Event {
    Pod(u8),
    PodGone(u8),
    /// Seconds pass, and then this operator works.
    Works(u8, bool),
    /// It is started anew.
    Anew(bool),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => (0_u8..8).prop_map(Event::Pod),
        3 => (0_u8..8).prop_map(Event::PodGone),
        8 => (0_u8..40, any::<bool>()).prop_map(|(seconds, who)| Event::Works(seconds, who)),
        1 => any::<bool>().prop_map(Event::Anew),
    ]
}

/// Leases that nobody held at this moment, and since when.
fn follow(cluster: &Cluster, free: &mut HashMap<String, Timestamp>) {
    let view = cluster.objects.view();
    let uids: std::collections::HashSet<_> = view.claims.values().map(|claim| claim.metadata.uid.clone()).collect();
    free.retain(|name, since| {
        let there = view.leases.contains_key(name);
        let rested = cluster.now.as_second() - since.as_second();
        assert!(there || rested >= 60, "{name} came back after {rested} s");
        there
    });
    for (name, lease) in view.leases.iter().filter(|(_, lease)| lease.spec.pool_ref.name.contains("red")) {
        if uids.contains(&lease.spec.claim_ref.uid) {
            free.remove(name);
        } else {
            free.entry(name.clone()).or_insert(cluster.now);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if std::env::var_os("JUNEAU_LONG").is_some() { 2000 } else { 60 }, ..ProptestConfig::default() })]
    #[test]
    fn clocks_that_are_hours_apart_shorten_no_rest_and_keep_nothing_for_ever(
        ahead in (-7200_i64..7200, -7200_i64..7200),
        events in prop::collection::vec(event(), 1..60),
    ) {
        let mut cluster = Cluster::new();
        cluster.config.settle = Duration::from_secs(10);
        cluster.config.main_table_grace = Duration::from_secs(1);
        let mut observers = [ahead.0, ahead.1].map(|ahead| Observer { ahead, ..Observer::default() });
        observers[0].works(&mut cluster);
        cluster.tenant("red", "10.0.1.0/24");
        // A second after the Vpc was seen its table is made, whatever the time of day is said to be.
        for _ in 0..3 {
            observers[0].works(&mut cluster);
            observers[1].look(cluster.objects.view(), cluster.now);
            cluster.sleep(1);
        }
        prop_assert!(cluster.ready(Kind::Vpc, "red").0, "{:?}", cluster.ready(Kind::Vpc, "red"));
        let mut free = HashMap::new();
        let mut count = 0;
        for event in &events {
            match event {
                Event::Pod(n) if !cluster.exists(Kind::Pod, &format!("red/p{n}")) => {
                    count += 1;
                    let subnet = json!({"juneau.loutres.me/subnet": "red"});
                    cluster.pod_of("red", &format!("p{n}"), &format!("{n}-{count}"), subnet, json!([]));
                }
                Event::PodGone(n) if cluster.exists(Kind::Pod, &format!("red/p{n}")) => {
                    cluster.remove(Kind::Pod, &format!("red/p{n}"));
                }
                Event::Works(seconds, who) => {
                    for _ in 0..*seconds {
                        // Both watch all the time; one of them writes.
                        cluster.sleep(1);
                        observers.iter_mut().for_each(|observer| drop(observer.look(cluster.objects.view(), cluster.now)));
                    }
                    observers[usize::from(*who)].works(&mut cluster);
                    cluster.assert_unique();
                }
                Event::Anew(who) => {
                    let observer = &mut observers[usize::from(*who)];
                    *observer = Observer { ahead: observer.ahead, ..Observer::default() };
                }
                _ => {}
            }
            follow(&cluster, &mut free);
        }
        // Whatever the clocks say, all of it comes back in the end.
        for _ in 0..30 {
            cluster.sleep(5);
            observers[1].works(&mut cluster);
            follow(&cluster, &mut free);
        }
        prop_assert!(free.is_empty(), "{free:?}");
    }
}
