//! Another ABI number takes over, with the flows alive.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::node::{ADDRESSES, VPC, VPC_INDEX, program, tables, udp};
use common::sandbox;
use juneau_bpf::failpoint::{Failpoints, Write};
use juneau_bpf::{Dataplane, LoadId, Options, TestPacket};
use juneau_core::flow::FlowRead;
use juneau_core::layout::{EndpointKey, INGRESS, be32};
use juneau_core::tables::{Tables, TablesMut};
use juneau_core::verdict::{Action, Hook, Reason, Verdict};

/// Pod 0 may talk to pod 1 and gets answers; pod 1 may begin nothing.
fn one_way(ifindexes: [u32; 2]) -> Tables {
    let mut tables = tables(ifindexes);
    let second = tables.endpoints.get_mut(&EndpointKey { vpc: VPC, address: be32(ADDRESSES[1]) }).unwrap();
    second.identity = 2;
    tables.interfaces.get_mut(&ifindexes[1]).unwrap().identity = 2;
    let (key, rule) = tables.policies.iter().find(|(key, _)| key.direction == INGRESS).unwrap();
    let (mut key, rule) = (*key, *rule);
    key.identity = 2;
    tables.policies.insert(key, rule);
    tables
}

/// The same, with another number for the VPC.
fn renumbered(mut tables: Tables) -> Tables {
    let vpc = tables.vpcs.remove(&VPC_INDEX.into()).unwrap();
    tables.vpcs.insert(u32::from(VPC_INDEX) + 1, vpc);
    tables.interfaces.values_mut().for_each(|interface| interface.vpc_index += 1);
    tables.segments.values_mut().for_each(|segment| segment.vpc_index += 1);
    tables
}

fn send(dataplane: &Dataplane, from: usize, ifindexes: [u32; 2], ports: (u16, u16)) -> Verdict {
    let load = dataplane.test_load().unwrap();
    let run = load.run(Hook::Pod, &TestPacket::new(ifindexes[from], &udp(from, ports))).unwrap();
    run.verdict.decode().unwrap()
}

fn attach(dataplane: &Dataplane, ifindexes: [u32; 2]) {
    dataplane.attach_pod("pod0", ifindexes[0]).unwrap();
    dataplane.attach_pod("pod1", ifindexes[1]).unwrap();
}

fn next_abi(mut options: Options) -> Options {
    options.abi += 1;
    options
}

#[test]
fn flows_go_on() {
    sandbox(|sandbox| {
        let ifindexes = [sandbox.veth("pod0"), sandbox.veth("pod1")];
        let old = Dataplane::open(sandbox.options()).unwrap();
        program(&old, &one_way(ifindexes));
        attach(&old, ifindexes);
        for port in [1, 2] {
            assert_eq!(send(&old, 0, ifindexes, (port, 53)).action, Action::Peer);
            assert_eq!(send(&old, 1, ifindexes, (53, port)).action, Action::Peer, "an answer");
        }
        assert_eq!(send(&old, 1, ifindexes, (53, 3)).reason, Reason::PolicyEgress, "no answer");
        let links = old.links().unwrap();
        drop(old);

        let new = Dataplane::open(next_abi(sandbox.options())).unwrap();
        assert_eq!(new.load(), LoadId { abi: 4, generation: 1 });
        assert_eq!(new.other_abis().unwrap(), [3]);
        program(&new, &renumbered(one_way(ifindexes)));
        // The new programs have opened one of the flows by themselves.
        assert_eq!(send(&new, 0, ifindexes, (2, 53)).action, Action::Peer);
        let done = new.take_over().unwrap();
        assert_eq!((done.copied, done.conflicts, done.left), (2, 2, 0), "{done:?}");
        assert_eq!(done.removed, [3]);
        assert_eq!(sandbox.pins(""), ["abi-4", "links"]);
        let taken: Vec<_> = done.links.iter().map(|link| (link.ifindex, link.load)).collect();
        let kept: Vec<_> = links.iter().map(|link| (link.ifindex, Some(new.load()))).collect();
        assert_eq!(taken, kept);

        let flows = new.flows().unwrap();
        assert_eq!(flows.vpc_state(VPC_INDEX).unwrap().flows, 0);
        assert_eq!(flows.vpc_state(VPC_INDEX + 1).unwrap().flows, 2);
        let answer = send(&new, 1, ifindexes, (53, 1));
        assert_eq!((answer.action, answer.slow), (Action::Peer, true), "decided anew, as an answer");
        assert!(!send(&new, 1, ifindexes, (53, 1)).slow);
        assert_eq!(send(&new, 1, ifindexes, (53, 3)).reason, Reason::PolicyEgress, "no answer");
        let again = new.take_over().unwrap();
        assert_eq!((again.copied, again.removed), (0, vec![]));
    });
}

#[test]
fn tables_come_along_when_there_are_none() {
    sandbox(|sandbox| {
        let ifindexes = [sandbox.veth("pod0"), sandbox.veth("pod1")];
        let old = Dataplane::open(sandbox.options()).unwrap();
        program(&old, &one_way(ifindexes));
        attach(&old, ifindexes);
        send(&old, 0, ifindexes, (1, 53));
        drop(old);
        let new = Dataplane::open(next_abi(sandbox.options())).unwrap();
        assert_eq!(send(&new, 1, ifindexes, (53, 1)).reason, Reason::NoInterface);
        assert_eq!(new.take_over().unwrap().copied, 2);
        assert_eq!(new.tables().unwrap().snapshot().unwrap(), one_way(ifindexes));
        assert_eq!(send(&new, 1, ifindexes, (53, 1)).action, Action::Peer, "an answer");
    });
}

#[test]
fn directories_that_are_not_ours_stay() {
    sandbox(|sandbox| {
        std::fs::create_dir_all(sandbox.root().join("abi-7")).unwrap();
        let dataplane = Dataplane::open(sandbox.options()).unwrap();
        let done = dataplane.take_over().unwrap();
        assert_eq!((done.unreadable, done.removed), (vec![7], vec![]));
        assert!(sandbox.pins("").contains(&"abi-7".to_owned()));
    });
}

#[test]
fn a_take_over_that_dies_is_taken_up_again() {
    sandbox(|sandbox| {
        let ifindexes = [sandbox.veth("pod0"), sandbox.veth("pod1")];
        // Each round is an ABI of its own; the flow comes along all the way.
        let mut options = sandbox.options();
        let first = Dataplane::open(options.clone()).unwrap();
        program(&first, &one_way(ifindexes));
        attach(&first, ifindexes);
        send(&first, 0, ifindexes, (1, 53));
        send(&first, 1, ifindexes, (53, 1));
        drop(first);
        let mut deaths = 0;
        for number in 1.. {
            options = next_abi(options);
            drop({
                let prepared = Dataplane::open(options.clone()).unwrap();
                program(&prepared, &one_way(ifindexes));
                prepared
            });
            let mut dying = options.clone();
            let (send_start, started) = std::sync::mpsc::channel::<()>();
            let started = std::sync::Mutex::new((started, None::<u64>));
            dying.failpoints = Failpoints::new(move |write: &Write<'_>| {
                let mut started = started.lock().unwrap();
                if started.0.try_recv().is_ok() {
                    started.1 = Some(write.number);
                }
                match started.1 {
                    Some(start) if write.number >= start + number - 1 => {
                        Err(std::io::Error::from_raw_os_error(libc::EINTR))
                    }
                    _ => Ok(()),
                }
            });
            let dataplane = Dataplane::open(dying).unwrap();
            send_start.send(()).unwrap();
            let outcome = dataplane.take_over();
            let died = outcome.is_err();
            deaths += usize::from(died);
            drop(dataplane);
            let whole = Dataplane::open(options.clone()).unwrap();
            program(&whole, &one_way(ifindexes));
            whole.take_over().unwrap();
            assert_eq!(whole.other_abis().unwrap(), [0; 0], "death {number}");
            assert!(whole.links().unwrap().iter().all(|link| link.load == Some(whole.load())), "death {number}");
            assert_eq!(whole.flows().unwrap().vpc_state(VPC_INDEX).unwrap().flows, 1, "death {number}");
            assert_eq!(send(&whole, 1, ifindexes, (53, 1)).action, Action::Peer, "death {number}");
            if !died {
                break;
            }
            // The rest of a take-over removes the old directory, pin by pin: one death in it is like another.
            if number > 8 {
                break;
            }
        }
        assert!(deaths >= 8, "{deaths} deaths");
    });
}
