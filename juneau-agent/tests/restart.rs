//! Agents that are killed again and again, while traffic passes and other flows' endpoints and routes change.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod support;

use juneau_bpf::KernelTables;
use juneau_core::tables::{Tables, TablesMut};
use std::fmt::Write as _;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};
use support::agent::Node;
use support::traffic::{Datagrams, Report, Stream};
use support::{Pod, in_node, run};

const PINS: &str = "/sys/fs/bpf/juneau";
/// Each kill: before which write to a map, or none for one from outside while changes come in.
const KILLS: [Option<u64>; 20] = [
    Some(1),
    None,
    Some(2),
    Some(3),
    Some(4),
    None,
    Some(6),
    Some(8),
    None,
    Some(11),
    Some(15),
    None,
    Some(20),
    Some(26),
    None,
    Some(33),
    Some(41),
    None,
    None,
    None,
];
/// How long one agent may take to start or to come to its end, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two changes of the manifests.
const TURN: Duration = Duration::from_millis(20);

/// Other Pods of the same tenant, and routes of its table: another set at each turn.
fn churn(nodes: [&Node; 2], red: &str, turn: usize) {
    let mut others = String::new();
    for other in 0..8 {
        let number = 100 + (turn * 3 + other) % 100;
        let node = nodes[number % 2].name.as_str();
        let pod = format!("{{name: x{number}, interface: eth0, uid: red-x{number}}}");
        write!(
            others,
            "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: x{number}, namespace: red, uid: red-x{number}, \
             annotations: {{juneau.loutres.me/subnet: red-a}}}}, spec: {{nodeName: {node}, containers: []}}}}\n\
             ---\n{{apiVersion: juneau.loutres.me/v1alpha1, kind: NetworkInterface, \
             metadata: {{name: x{number}.eth0, namespace: red}}, \
             spec: {{podRef: {pod}, nodeName: {node}, subnet: red-a}}, \
             status: {{phase: Ready, address: 10.0.1.{number}/24}}}}\n\
             ---\n{{apiVersion: juneau.loutres.me/v1alpha1, kind: NetworkEndpoint, \
             metadata: {{name: x{number}.eth0, namespace: red}}, \
             spec: {{kind: Pod, nodeName: {node}, subnet: red-a, address: 10.0.1.{number}/24, \
             macAddress: '02:00:0a:00:01:{number:02x}', podRef: {pod}}}}}\n"
        )
        .unwrap();
    }
    let mut routes = String::from("  routes:\n");
    for route in 0..6 {
        let (third, target) = ((turn * 2 + route) % 50, ["b2", "a1"][turn / 2 % 2]);
        let target = if route % 2 == 0 { "b2" } else { target };
        writeln!(routes, "    - {{dst: 172.16.{third}.0/24, via: {{type: endpoint, endpointName: {target}.eth0}}}}")
            .unwrap();
    }
    let red = red.replace("  routes:\n", &routes);
    for node in nodes {
        node.write("others.yaml", &others);
        node.write("red.yaml", &red);
    }
}

/// What the kernel holds for the node in whose namespaces this runs.
fn dump() -> Tables {
    KernelTables::open(Path::new(PINS)).unwrap().snapshot().unwrap()
}

fn ended(child: &mut Child, mut meanwhile: impl FnMut()) {
    let end = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < end, "the failpoint was never reached");
        meanwhile();
        std::thread::sleep(TURN);
    };
    assert_eq!(status.signal(), Some(nix::libc::SIGKILL), "{status}");
}

fn show(name: &str, report: &Report) {
    eprintln!("{name}: {report:?}, lost {}", report.lost());
}

#[test]
fn kills_under_traffic_lose_nothing_and_leave_the_tables_of_a_fresh_start() {
    in_node(|| {
        let place = Pod::node();
        let thread = place.run(nix::unistd::gettid);
        run(&format!("ip link add up0 type veth peer name up0 netns {thread}"));
        run("ip addr add 192.168.77.11/24 dev up0 && ip link set up0 up");
        place.sh("ip addr add 192.168.77.12/24 dev up0 && ip link set up0 up");
        let nodes = [Node::new("node-1"), Node::new("node-2")];
        let red = std::fs::read_to_string(nodes[0].manifests().join("red.yaml")).unwrap();
        let [a1, b1, a2] = [Pod::new(), Pod::new(), Pod::new()];
        let start = |at: usize| if at == 0 { nodes[0].start() } else { nodes[1].start_in(&place) };
        let mut agents = [0, 1].map(|at| Some(start(at).ready()));
        for (at, pod, name) in [(0, &a1, "a1"), (0, &b1, "b1"), (1, &a2, "a2")] {
            agents[at].as_ref().unwrap().attach(pod, "red", name);
        }

        let datagrams = [Datagrams::start(&a1, &b1, "10.0.2.10:9000"), Datagrams::start(&a1, &a2, "10.0.1.20:9000")];
        let streams = [Stream::start(&a1, &b1, "10.0.2.10:8080"), Stream::start(&b1, &a2, "10.0.1.20:8080")];
        let mut turn = 0;
        let mut change = || {
            turn += 1;
            churn([&nodes[0], &nodes[1]], &red, turn);
        };
        for (number, kill) in KILLS.into_iter().enumerate() {
            let at = number % 2;
            let agent = agents[at].take().unwrap();
            match kill {
                None => {
                    let applied = agent.status().revision;
                    change();
                    agent.wait("a change is applied", |status| status.revision > applied);
                    change();
                    agent.kill();
                }
                Some(write) => {
                    // The start that dies finds changes to make as well.
                    assert!(agent.stop());
                    change();
                    let mut command = nodes[at].command();
                    command.env("JUNEAU_FAILPOINT", write.to_string());
                    let mut child =
                        if at == 0 { command.spawn().unwrap() } else { place.run(move || command.spawn().unwrap()) };
                    ended(&mut child, &mut change);
                }
            }
            change();
            agents[at] = Some(start(at).ready());
        }
        let [here, there] = datagrams;
        let reports = [("same node", here.finish(&b1)), ("across nodes", there.finish(&a2))];
        let streams = streams.map(Stream::finish);
        for (name, report) in &reports {
            show(name, report);
        }
        eprintln!("streams, bytes {streams:?}; {turn} changes");
        for (name, report) in &reports {
            assert!(report.sent > 10_000, "{name}: {report:?}");
            assert_eq!((report.lost(), report.disordered, report.refused), (0, 0, 0), "{name}: {report:?}");
        }
        for (written, read) in streams {
            assert!(written > 1 << 20, "{written}");
            assert_eq!(read, written);
        }

        // Started after the last change, they have read it.
        let mut restart = |meanwhile: &dyn Fn()| {
            for agent in &mut agents {
                agent.take().unwrap().kill();
            }
            meanwhile();
            agents = [0, 1].map(|at| Some(start(at).ready()));
            for agent in agents.iter().flatten() {
                agent.wait("everything is applied", |status| status.settled);
            }
            [dump(), place.run(dump)]
        };
        let restarted = restart(&|| ());
        // The same objects from nothing: no pins, so no maps and no attachments either. It loses, and is seen to.
        let control = Datagrams::start(&a1, &b1, "10.0.2.10:9001");
        let fresh = restart(&|| {
            run(&format!("rm -r {PINS}"));
            place.sh(&format!("rm -r {PINS}"));
        });
        let report = control.finish(&b1);
        show("without pins", &report);
        assert!(report.lost() > 0, "the harness sees no loss: {report:?}");
        assert!(fresh.iter().all(|tables| tables.endpoints.len() > 8 && tables.routes.len() > 8), "{fresh:?}");
        assert_eq!(restarted, fresh);
    });
}
