//! What a node holds, whatever order it is told in.

use crate::kinds;
use crate::source::objects::{Objects, Unread};
use crate::view::{Kind, Object, Text, View};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

const KEEP: Duration = Duration::from_secs(60);
const EP: Kind = Kind::NetworkEndpoint;
const NIC: Kind = Kind::NetworkInterface;

fn subnet(vpc: &str) -> Object {
    let mut subnet = kinds::Subnet::default();
    subnet.spec.vpc = vpc.into();
    Object::Subnet(Arc::new(subnet.into()))
}

fn endpoint(node: &str, subnet: &str) -> kinds::NetworkEndpoint {
    let mut endpoint = kinds::NetworkEndpoint::default();
    endpoint.spec.node_name = node.into();
    endpoint.spec.subnet = Some(subnet.into());
    endpoint
}

fn workload(kind: Kind, node: &str, subnet: &str) -> Object {
    if kind == EP {
        return Object::NetworkEndpoint(Arc::new(endpoint(node, subnet).into()));
    }
    let mut interface = kinds::NetworkInterface::default();
    interface.spec.node_name = node.into();
    interface.spec.subnet = Some(subnet.into());
    Object::NetworkInterface(Arc::new(interface.into()))
}

/// A node n1 that knows of Subnets red-a, red-b and blue-a, and has listed endpoints and interfaces.
fn listed(endpoints: &[(&str, &str, &str)]) -> Objects {
    let mut objects = Objects::new([Kind::Subnet, EP, NIC], Some("n1".into()), KEEP, "test");
    objects.begin(Kind::Subnet);
    for (name, vpc) in [("red-a", "red"), ("red-b", "red"), ("blue-a", "blue")] {
        objects.apply(Kind::Subnet, "", name, Ok(subnet(vpc)));
    }
    objects.end(Kind::Subnet);
    for kind in [EP, NIC] {
        objects.begin(kind);
        for (name, node, subnet) in endpoints.iter().filter(|_| kind == EP) {
            objects.apply(EP, "t", name, Ok(workload(EP, node, subnet)));
        }
        objects.end(kind);
    }
    objects
}

fn held(objects: &Objects) -> Vec<String> {
    let view = objects.snapshot().view;
    view.names(EP).into_iter().map(|(_, name)| name.to_string()).collect()
}

/// Answers every question with these endpoints.
fn answer(objects: &mut Objects, parts: &[Unread], endpoints: &[(&str, &str, &str)]) {
    for part in parts {
        let told = endpoints.iter().filter(|(_, _, of)| part.kind == EP && *of == &*part.subnet);
        let told = told.map(|(name, node, of)| ("t".into(), (*name).into(), Ok(workload(EP, node, of))));
        objects.read(part, Ok(told.collect()));
    }
}

#[test]
fn a_vpc_is_held_when_something_here_is_in_it_and_shown_when_it_was_read_whole() {
    let all = [("r1", "n2", "red-a"), ("r2", "n2", "red-b"), ("b1", "n2", "blue-a")];
    let mut objects = listed(&all);
    let now = Instant::now();
    assert_eq!((held(&objects), objects.snapshot().unknown), (vec![], 0));
    assert_eq!(objects.tend(now), (vec![], None));
    objects.apply(EP, "t", "own", Ok(workload(EP, "n1", "red-a")));
    let (parts, next) = objects.tend(now);
    let asked: Vec<_> = parts.iter().map(|part| (part.kind, &*part.subnet)).collect();
    assert_eq!(asked, [(NIC, "red-a"), (EP, "red-a"), (NIC, "red-b"), (EP, "red-b")]);
    assert_eq!((next, objects.snapshot().unknown), (None, 4));
    answer(&mut objects, &parts[..3], &all);
    assert_eq!(held(&objects), [""; 0], "nobody acts on half a VPC");
    answer(&mut objects, &parts[3..], &all);
    assert_eq!((held(&objects), objects.snapshot().unknown), (vec!["own".into(), "r1".into(), "r2".into()], 0));
    objects.apply(EP, "t", "r3", Ok(workload(EP, "n3", "red-b")));
    objects.apply(EP, "t", "b2", Ok(workload(EP, "n3", "blue-a")));
    assert_eq!(held(&objects), ["own", "r1", "r2", "r3"]);

    // Nothing here is in it any more: a while later it is forgotten, and has to be read when it is needed again.
    objects.delete(EP, "t", "own");
    assert_eq!(objects.tend(now), (vec![], Some(now + KEEP)));
    assert_eq!(held(&objects), ["r1", "r2", "r3"]);
    objects.apply(EP, "t", "own", Ok(workload(EP, "n1", "red-b")));
    assert_eq!(objects.tend(now + KEEP), (vec![], None), "it was there all the time");
    objects.delete(EP, "t", "own");
    assert_eq!(objects.tend(now + KEEP).1, Some(now + 2 * KEEP));
    assert_eq!(objects.tend(now + 2 * KEEP), (vec![], None));
    assert_eq!(held(&objects), [""; 0]);
    objects.apply(EP, "t", "own", Ok(workload(EP, "n1", "red-a")));
    assert_eq!(objects.tend(now + 2 * KEEP).0.len(), 4);
    assert_eq!(held(&objects), [""; 0]);
}

#[test]
fn what_the_watch_tells_meanwhile_counts() {
    let mut objects = listed(&[("r1", "n2", "red-a"), ("r2", "n2", "red-a")]);
    objects.apply(EP, "t", "own", Ok(workload(EP, "n1", "red-a")));
    let (parts, _) = objects.tend(Instant::now());
    objects.delete(EP, "t", "r1");
    objects.apply(EP, "t", "r2", Ok(workload(EP, "n3", "red-a")));
    answer(&mut objects, &parts, &[("r1", "n2", "red-a"), ("r2", "n2", "red-a"), ("own", "n1", "red-a")]);
    assert_eq!(held(&objects), ["own", "r2"]);
    let snapshot = objects.snapshot();
    assert_eq!(&*snapshot.view.network_endpoint("t", "r2").unwrap().object.node, "n3");
}

#[test]
fn a_list_of_everything_is_as_good_and_an_earlier_answer_does_not_count_after_it() {
    let mut objects = listed(&[("r1", "n2", "red-a")]);
    objects.apply(EP, "t", "own", Ok(workload(EP, "n1", "red-a")));
    let (parts, _) = objects.tend(Instant::now());
    for kind in [EP, NIC] {
        objects.begin(kind);
        assert!(!objects.tend(Instant::now()).0.iter().any(|part| part.kind == kind), "the list tells of it");
        if kind == EP {
            objects.apply(EP, "t", "own", Ok(workload(EP, "n1", "red-a")));
            objects.apply(EP, "t", "r2", Ok(workload(EP, "n2", "red-b")));
        }
        objects.end(kind);
    }
    assert_eq!((held(&objects), objects.snapshot().unknown), (vec!["own".into(), "r2".into()], 0));
    answer(&mut objects, &parts, &[("r1", "n2", "red-a")]);
    assert_eq!(held(&objects), ["own", "r2"]);
}

#[test]
fn what_is_here_waits_for_its_vpc_even_if_its_subnet_is_known_later() {
    let mut objects = listed(&[("r1", "n2", "new")]);
    objects.apply(EP, "t", "own", Ok(workload(EP, "n1", "new")));
    assert_eq!(held(&objects), ["own"], "its Subnet is missing, and that can be said");
    objects.apply(Kind::Subnet, "", "new", Ok(subnet("green")));
    assert_eq!(held(&objects), [""; 0]);
    let (parts, _) = objects.tend(Instant::now());
    objects.read(&parts[0], Err(("refused".into(), "grant it".into())));
    let snapshot = objects.snapshot();
    assert_eq!(snapshot.problems[0].to_string(), "list of NetworkInterface: refused; grant it");
    assert_eq!(snapshot.unknown, 2);
    answer(&mut objects, &parts, &[("r1", "n2", "new")]);
    assert_eq!(held(&objects), ["own", "r1"]);
    assert!(objects.snapshot().problems.is_empty());
    // Another Subnet of the VPC keeps nobody waiting.
    objects.apply(Kind::Subnet, "", "newer", Ok(subnet("green")));
    assert_eq!(held(&objects), ["own", "r1"]);
    assert_eq!(objects.tend(Instant::now()).0.len(), 2);
}

#[test]
fn what_could_not_be_read_is_no_problem_once_nobody_needs_it() {
    let mut objects = listed(&[]);
    objects.apply(EP, "t", "own", Ok(workload(EP, "n1", "red-a")));
    let (parts, _) = objects.tend(Instant::now());
    objects.read(&parts[0], Err(("refused".into(), "grant it".into())));
    // Another answer says nothing about it.
    answer(&mut objects, &parts[1..], &[]);
    assert_eq!(objects.snapshot().problems.len(), 1);
    objects.delete(EP, "t", "own");
    let snapshot = objects.snapshot();
    assert_eq!((snapshot.problems.len(), snapshot.unknown), (0, 0), "{:?}", snapshot.problems);
}

#[test]
fn what_only_an_endpoint_s_node_reads_is_held_there_alone() {
    let mut objects = listed(&[("own", "n1", "red-a")]);
    let (parts, _) = objects.tend(Instant::now());
    answer(&mut objects, &parts, &[]);
    let mut tell = |node: &str, name: &str, ifindex: u32| {
        let mut endpoint = endpoint(node, "red-a");
        endpoint.metadata.uid = Some("u".into());
        endpoint.spec.attachment = Some(kinds::Attachment { ifindex, ..Default::default() });
        objects.apply(EP, "t", name, Ok(Object::NetworkEndpoint(Arc::new(endpoint.into()))));
        objects.snapshot().view.workloads["t"].clone()
    };
    let first = tell("n1", "a.eth0", 7);
    let own = first.network_endpoints["a.eth0"].object.own.clone().unwrap();
    assert_eq!((own.uid.as_str(), own.attachment.as_ref().unwrap().ifindex), ("u", 7));
    let before = tell("n2", "b.eth0", 7);
    assert_eq!(before.network_endpoints["b.eth0"].object.own, None);
    assert!(Arc::ptr_eq(&before, &tell("n2", "b.eth0", 8)), "another node's business");
    assert!(!Arc::ptr_eq(&before, &tell("n1", "a.eth0", 8)));
}

/// A server and a node that follows it.
struct World {
    objects: Objects,
    now: Instant,
    state: BTreeMap<(Kind, &'static str), Object>,
    log: Vec<(Kind, &'static str, Option<Object>)>,
    /// How much of the log each watch has told.
    told: BTreeMap<Kind, usize>,
    /// What lists that are under way have not told yet.
    lists: BTreeMap<Kind, Vec<(&'static str, Object)>>,
    /// Questions, with what the answers will say.
    asked: Vec<(Unread, Vec<(&'static str, Object)>)>,
}

const KINDS: [Kind; 3] = [Kind::Subnet, NIC, EP];
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
const SUBNETS: [(&str, [&str; 2]); 3] =
    [("red-a", ["red", "blue"]), ("red-b", ["red", "red"]), ("blue-a", ["blue"; 2])];

#[derive(Debug, Clone)]
enum Step {
    Subnet { which: usize, vpc: usize, gone: bool },
    Workload { kind: usize, name: usize, here: bool, subnet: usize, gone: bool },
    Tell { kind: usize, events: usize },
    Begin(usize),
    End(usize),
    Ask,
    Answer,
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0..3_usize, 0..2_usize, prop::bool::weighted(0.3))
            .prop_map(|(which, vpc, gone)| Step::Subnet { which, vpc, gone }),
        8 => (1..3_usize, 0..5_usize, prop::bool::weighted(0.3), 0..3_usize, prop::bool::weighted(0.4))
            .prop_map(|(kind, name, here, subnet, gone)| Step::Workload { kind, name, here, subnet, gone }),
        8 => (0..3_usize, 1..4_usize).prop_map(|(kind, events)| Step::Tell { kind, events }),
        2 => (0..3_usize).prop_map(Step::Begin),
        2 => (0..3_usize).prop_map(Step::End),
        4 => Just(Step::Ask),
        4 => Just(Step::Answer),
        1 => (1..90_u64).prop_map(Step::Wait),
    ]
}

impl World {
    fn new() -> Self {
        let objects = Objects::new(KINDS, Some("n1".into()), KEEP, "test");
        let (state, log, told) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        let (lists, asked) = (BTreeMap::new(), Vec::new());
        Self { objects, now: Instant::now(), state, log, told, lists, asked }
    }

    fn change(&mut self, kind: Kind, name: &'static str, object: Option<Object>) {
        match &object {
            Some(object) => drop(self.state.insert((kind, name), object.clone())),
            None if self.state.remove(&(kind, name)).is_none() => return,
            None => {}
        }
        self.log.push((kind, name, object));
    }

    fn all(&self, kind: Kind) -> Vec<(&'static str, Object)> {
        let all = self.state.iter().filter(|((of, _), _)| *of == kind);
        all.map(|((_, name), object)| (*name, object.clone())).collect()
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Subnet { which, vpc, gone } => {
                let (name, vpcs) = SUBNETS[which];
                self.change(Kind::Subnet, name, (!gone).then(|| subnet(vpcs[vpc])));
            }
            Step::Workload { kind, name, here, subnet, gone } => {
                let node = if here { "n1" } else { "n2" };
                let object = (!gone).then(|| workload(KINDS[kind], node, SUBNETS[subnet].0));
                self.change(KINDS[kind], NAMES[name], object);
            }
            Step::Tell { kind, events } => self.tell(KINDS[kind], events),
            Step::Begin(kind) => {
                let kind = KINDS[kind];
                let mut rest = self.all(kind);
                self.told.insert(kind, self.log.len());
                self.objects.begin(kind);
                for (name, object) in rest.split_off(rest.len() / 2) {
                    self.apply(kind, name, object);
                }
                self.lists.insert(kind, rest);
            }
            Step::End(kind) => self.end(KINDS[kind]),
            Step::Ask => {
                if self.asked.is_empty() {
                    let (parts, _) = self.objects.tend(self.now);
                    let of = |object: &Object| super::place(object).and_then(|(_, of)| of).cloned();
                    for part in parts {
                        let all = self.all(part.kind).into_iter();
                        let told = all.filter(|(_, object)| of(object).as_ref() == Some(&part.subnet)).collect();
                        self.asked.push((part, told));
                    }
                }
            }
            Step::Answer => {
                for (part, told) in std::mem::take(&mut self.asked) {
                    let text = |name: &str| Text::from(name);
                    let told = told.into_iter().map(|(name, object)| (text("t"), text(name), Ok(object)));
                    self.objects.read(&part, Ok(told.collect()));
                }
            }
            Step::Wait(seconds) => self.now += Duration::from_secs(seconds),
        }
    }

    fn apply(&mut self, kind: Kind, name: &str, object: Object) {
        self.objects.apply(kind, if kind == Kind::Subnet { "" } else { "t" }, name, Ok(object));
    }

    /// A watch goes on, unless a list is under way or none has been.
    fn tell(&mut self, kind: Kind, events: usize) {
        if self.lists.contains_key(&kind) {
            return;
        }
        let Some(told) = self.told.get(&kind).copied() else { return };
        let next = self.log.iter().enumerate().skip(told).filter(|(_, event)| event.0 == kind).take(events);
        for (at, (_, name, object)) in next.map(|(at, event)| (at, event.clone())).collect::<Vec<_>>() {
            self.told.insert(kind, at + 1);
            match object {
                Some(object) => self.apply(kind, name, object),
                None => self.objects.delete(kind, if kind == Kind::Subnet { "" } else { "t" }, name),
            }
        }
    }

    fn end(&mut self, kind: Kind) {
        if let Some(rest) = self.lists.remove(&kind) {
            for (name, object) in rest {
                self.apply(kind, name, object);
            }
            self.objects.end(kind);
        }
    }

    /// All is told and asked, and nothing is kept that is not needed.
    fn settle(&mut self) {
        for (number, kind) in KINDS.into_iter().enumerate() {
            if !self.told.contains_key(&kind) {
                self.take(&Step::Begin(number));
            }
            self.end(kind);
            self.tell(kind, usize::MAX);
        }
        for _ in 0..3 {
            self.take(&Step::Answer);
            self.take(&Step::Ask);
            self.now += KEEP;
        }
        assert!(self.asked.is_empty(), "nothing is left to ask: {:?}", self.asked);
    }

    /// What a node should hold.
    fn wanted(&self) -> View {
        let mut view = View { pods_of: Some("n1".into()), ..View::default() };
        let vpc = |of: &Text| match self.state.get(&(Kind::Subnet, SUBNETS.iter().find(|(n, _)| **n == **of)?.0))? {
            Object::Subnet(subnet) => Some(Arc::clone(&subnet.vpc)),
            _ => None,
        };
        let place = |object: &Object| super::place(object).map(|(node, of)| (node.clone(), of.unwrap().clone()));
        let own: Vec<Text> = self
            .state
            .values()
            .filter_map(place)
            .filter(|(node, _)| **node == *"n1")
            .filter_map(|(_, of)| vpc(&of))
            .collect();
        for ((kind, name), object) in &self.state {
            let is_needed =
                place(object).is_none_or(|(node, of)| *node == *"n1" || vpc(&of).is_some_and(|vpc| own.contains(&vpc)));
            if is_needed {
                let namespace = if *kind == Kind::Subnet { "" } else { "t" };
                let origin = crate::view::Origin { file: "test".into(), document: 0 };
                let mut object = object.clone();
                if let Object::NetworkEndpoint(endpoint) = &mut object
                    && *endpoint.node != *"n1"
                {
                    Arc::make_mut(endpoint).own = None;
                }
                view.replace(&namespace.into(), &(*name).into(), &object, origin);
            }
        }
        view
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// In any order of changes, events, lists, questions and answers: the end is what is needed, all of it and no more.
    #[test]
    fn in_any_order_the_end_is_what_is_needed(steps in prop::collection::vec(step(), 1..60)) {
        let mut world = World::new();
        for step in &steps {
            world.take(step);
        }
        world.settle();
        let snapshot = world.objects.snapshot();
        prop_assert_eq!(snapshot.unknown, 0);
        prop_assert_eq!(snapshot.view, world.wanted());
    }
}
