//! Restarts, leftovers and what survives them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use juneau_agent::pod::LINK_GROUP;
use juneau_agent::protocol::Endpoint;
use juneau_bpf::KernelTables;
use juneau_core::layout::{self, EndpointKey, be32};
use juneau_core::tables::{Change, TablesMut};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use support::agent::{Agent, Node, container_id, until};
use support::{Pod, in_node, lonely_underlay, run};

const PINS: &str = "/sys/fs/bpf/juneau";

/// A connection between two Pods.
fn connect(client: &Pod, server: &Pod, address: &'static str) -> (TcpStream, TcpStream) {
    let listener = server.run(move || TcpListener::bind(address).unwrap());
    let out = client.run(move || TcpStream::connect(address).unwrap());
    let (into, _) = listener.accept().unwrap();
    into.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
    (out, into)
}

fn passes(streams: &mut (TcpStream, TcpStream), text: &[u8]) {
    streams.0.write_all(text).unwrap();
    let mut heard = vec![0; text.len()];
    streams.1.read_exact(&mut heard).unwrap();
    assert_eq!(heard, text);
}

/// Endpoints without the numbers that devices happen to have; those must be the devices' own.
fn places(agent: &Agent<'_>) -> Vec<Endpoint> {
    let devices: Vec<u32> = agent.status().attachments.iter().map(|attachment| attachment.ifindex).collect();
    let endpoints = agent.endpoints().endpoints.into_iter().map(|mut endpoint| {
        if endpoint.ifindex != 0 {
            assert!(devices.contains(&endpoint.ifindex), "{endpoint:?} {devices:?}");
            endpoint.ifindex = 1;
        }
        endpoint
    });
    endpoints.collect()
}

#[test]
fn a_kill_and_a_restart_move_no_packet() {
    in_node(|| {
        lonely_underlay();
        let node = Node::new("node-1");
        let [a1, b1] = [Pod::new(), Pod::new()];
        let agent = node.start().ready();
        agent.attach(&a1, "red", "a1");
        agent.attach(&b1, "red", "b1");
        let mut streams = connect(&a1, &b1, "10.0.2.10:8080");
        passes(&mut streams, b"before");
        let (attachments, endpoints) = (agent.status().attachments, agent.endpoints());
        agent.kill();
        passes(&mut streams, b"without an agent");
        assert!(a1.succeeds("ping -c 1 -W 2 10.0.2.10"), "new flows need no agent either");

        let agent = node.start().ready();
        passes(&mut streams, b"after");
        assert_eq!(agent.status().attachments, attachments);
        assert_eq!(agent.endpoints(), endpoints);
        assert_eq!(agent.status().generation, 2);
        assert!(!Path::new(PINS).join("abi-3/gen-1").exists(), "the first load's pins are gone");
        let tcp = agent.flows().flows.into_iter().filter(|flow| flow.protocol == "tcp").count();
        assert_eq!(tcp, 2, "the connection has its two entries");

        // Attaching again after the restart finds what is there.
        agent.attach(&a1, "red", "a1");
        passes(&mut streams, b"after attaching again");
        assert_eq!(agent.status().attachments, attachments);
        assert!(agent.stop());
        assert!(!node.socket().exists());
        passes(&mut streams, b"after the end");
    });
}

#[test]
fn a_kill_within_an_application_is_repaired() {
    in_node(|| {
        lonely_underlay();
        let node = Node::new("node-1");
        let [a1, b1] = [Pod::new(), Pod::new()];
        let agent = node.start().ready();
        agent.attach(&a1, "red", "a1");
        let mut number = 1;
        let wanted = {
            agent.attach(&b1, "red", "b1");
            let wanted = places(&agent);
            assert!(agent.detach(&b1, "red", "b1").changed);
            agent.kill();
            wanted
        };
        // Each write of attaching b1, from the first to the last.
        loop {
            let mut command = node.command();
            let mut child = command.env("JUNEAU_FAILPOINT", number.to_string()).spawn().unwrap();
            let sandbox = node.sandbox(&b1, "red", "b1", &container_id("red", "b1"));
            let attached = until("attach or end", || {
                let method = juneau_agent::protocol::Method::Attach(sandbox.clone());
                match node.ask::<juneau_agent::protocol::Attached>(&method) {
                    Ok(_) => Some(true),
                    Err(_) => child.try_wait().unwrap().is_some().then_some(false),
                }
            });
            let _ = child.kill();
            let _ = child.wait();
            let agent = node.start().ready();
            agent.attach(&b1, "red", "b1");
            assert_eq!(places(&agent), wanted, "after write {number}");
            assert!(a1.succeeds("ping -c 1 -W 2 10.0.2.10"), "after write {number}");
            if attached == Some(true) {
                break;
            }
            agent.detach(&b1, "red", "b1");
            agent.kill();
            number += 1;
        }
        assert!(number > 5, "only {number} writes were seen");
    });
}

#[test]
fn leftovers_are_swept() {
    in_node(|| {
        lonely_underlay();
        let node = Node::new("node-1");
        let a1 = Pod::new();
        let agent = node.start().ready();
        agent.attach(&a1, "red", "a1");
        let good = agent.endpoints();
        agent.kill();

        // A device that an interrupted attachment left, one of a Pod that is no more, one of somebody else.
        run(&format!("ip link add half type veth peer name half1 && ip link set half group {LINK_GROUP}"));
        run(&format!("ip link add gone type veth peer name gone1 && ip link set gone group {LINK_GROUP}"));
        run("ip link set gone alias 'juneau 0123 red/gone'");
        run("ip link add other type veth peer name other1");
        // An endpoint that no object describes, and one that was changed.
        let mut tables = KernelTables::open(Path::new(PINS)).unwrap();
        let strange = EndpointKey { vpc: 2, address: be32([10, 0, 1, 99].into()) };
        tables.apply(&Change::Endpoint(strange, Some(layout::Endpoint::default()))).unwrap();
        let known = EndpointKey { vpc: 2, address: be32([10, 0, 1, 20].into()) };
        tables.apply(&Change::Endpoint(known, Some(layout::Endpoint::default()))).unwrap();

        let agent = node.start().ready();
        assert_eq!(agent.endpoints(), good);
        let exists = |name: &str| {
            std::process::Command::new("ip").args(["link", "show", name]).output().unwrap().status.success()
        };
        assert!(!exists("half"), "half made");
        until("the unknown Pod's device goes", || (!exists("gone")).then_some(())).unwrap();
        assert!(exists("other"), "not ours");

        // The same while the agent runs.
        tables.apply(&Change::Endpoint(strange, Some(layout::Endpoint::default()))).unwrap();
        tables.apply(&Change::Endpoint(known, None)).unwrap();
        until("tables are put right", || (agent.endpoints() == good).then_some(())).unwrap();
    });
}

#[test]
fn what_others_take_away_is_put_back() {
    in_node(|| {
        lonely_underlay();
        let node = Node::new("node-1");
        let [a1, b1] = [Pod::new(), Pod::new()];
        let agent = node.start().ready();
        let name = agent.attach(&a1, "red", "a1").host_interface;
        agent.attach(&b1, "red", "b1");
        let reach = || a1.succeeds("ping -c 1 -W 1 10.0.2.10");
        assert!(reach());
        // An attachment ends with its pin.
        std::fs::remove_file(Path::new(PINS).join("links").join(format!("pod-{name}"))).unwrap();
        until("the program is back", || reach().then_some(())).unwrap();
        // A neighbour that somebody flushed. There is none without another node's Pods: the VTEP is enough.
        run("ip neigh flush dev up0 nud all || true; ip neigh del 192.168.77.12 dev up0 || true");
        until("the neighbour is back", || run("ip neigh show dev up0").contains("managed").then_some(())).unwrap();
        // A route of the node and the VXLAN device.
        run("ip link delete juneau.vxlan");
        agent.wait("the VXLAN device", |status| {
            status.ready && run("ip -o link show type vxlan").contains("juneau.vxlan")
        });
        assert!(reach());
    });
}

#[test]
fn without_pins_everything_comes_back_and_no_object_is_touched() {
    in_node(|| {
        lonely_underlay();
        let node = Node::new("node-1");
        let [a1, b1] = [Pod::new(), Pod::new()];
        let agent = node.start().ready();
        agent.attach(&a1, "red", "a1");
        agent.attach(&b1, "red", "b1");
        let (attachments, endpoints) = (agent.status().attachments, agent.endpoints());
        agent.kill();
        std::fs::remove_dir_all(PINS).unwrap();
        // The kernel lets go of what was pinned in its own time.
        until("nothing is left that forwards", || (!a1.succeeds("ping -c 1 -W 1 10.0.2.10")).then_some(())).unwrap();
        let agent = node.start().ready();
        assert_eq!((agent.status().attachments, agent.endpoints()), (attachments, endpoints));
        assert!(a1.succeeds("ping -c 1 -W 2 10.0.2.10"));
    });
}

#[test]
fn a_second_agent_is_told_who_is_first() {
    in_node(|| {
        lonely_underlay();
        let node = Node::new("node-1");
        let agent = node.start().ready();
        let pid = agent.status().pid;
        let second = node.command().output().unwrap();
        assert!(!second.status.success());
        let said = String::from_utf8_lossy(&second.stderr).into_owned();
        assert!(said.contains("another agent") && said.contains(&pid.to_string()), "{said}");
        // With a state directory of its own it meets the lock of the pins.
        let elsewhere = support::Directory::new("second");
        let path = elsewhere.path();
        let mut child = node.command_with(path).spawn().unwrap();
        let problem = until("the second agent names the lock", || {
            let method = juneau_agent::protocol::Method::Status;
            let status: juneau_agent::protocol::Status =
                juneau_agent::protocol::call(&path.join("agent.sock"), &method, std::time::Duration::from_secs(5))
                    .ok()?;
            status.problems.into_iter().find(|problem| problem.message.contains("in use by another process"))
        });
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(problem.is_some());
        assert!(agent.status().ready, "the first one notices nothing");
    });
}
