//! What is wrong outside the agent: files, devices, other programs, full maps. Each is named with its remedy, and
//! whoever is not concerned notices nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use juneau_agent::protocol::{Attached, Method, Problem, Status};
use juneau_bpf::{Dataplane, NodeConfig, Options};
use support::agent::{Agent, Node, until};
use support::{Pod, in_node, lonely_underlay, run};

fn problem<'a>(status: &'a Status, object: &str) -> Option<&'a Problem> {
    status.problems.iter().find(|problem| problem.object == object)
}

/// Waits for a problem about an object; its message and remedy.
fn wait_problem(agent: &Agent<'_>, object: &str, text: &str) -> Problem {
    let find = |status: &Status| {
        let mut problems = status.problems.iter();
        problems.find(|problem| problem.object == object && problem.message.contains(text)).cloned()
    };
    let status = agent.wait(&format!("a problem of {object} with {text:?}"), |status| find(status).is_some());
    find(&status).unwrap()
}

fn wait_well(agent: &Agent<'_>, object: &str) {
    agent.wait(&format!("no problem of {object}"), |status| status.ready && problem(status, object).is_none());
}

/// red's two Pods of node-1, attached.
fn red(agent: &Agent<'_>) -> [Pod; 2] {
    let pods = [Pod::new(), Pod::new()];
    agent.attach(&pods[0], "red", "a1");
    agent.attach(&pods[1], "red", "b1");
    pods
}

fn reach(pods: &[Pod; 2]) -> bool {
    pods[0].succeeds("ping -c 1 -W 1 10.0.2.10")
}

#[test]
fn a_broken_file_keeps_what_was_good() {
    in_node(|| {
        lonely_underlay();
        let node = Node::new("node-1");
        let agent = node.start().ready();
        let pods = red(&agent);
        let good = std::fs::read_to_string(node.manifests().join("red.yaml")).unwrap();
        node.write("red.yaml", "a: [");
        let found = wait_problem(&agent, "file red.yaml", "is not YAML");
        assert!(found.message.contains("stay in force") && !found.remedy.is_empty(), "{found:?}");
        assert!(agent.status().ready && reach(&pods));

        // A start that has never seen the good file takes nothing away, flows among it.
        assert!(pods[0].succeeds("ping -c 1 -W 2 10.0.2.10"));
        let (endpoints, flows) = (agent.endpoints().endpoints.len(), agent.flows().flows.len());
        agent.kill();
        let agent = node.start().ready();
        wait_problem(&agent, "file red.yaml", "is not YAML");
        assert_eq!((agent.endpoints().endpoints.len(), agent.flows().flows.len()), (endpoints, flows));
        assert!(reach(&pods));

        node.write("red.yaml", &good);
        wait_well(&agent, "file red.yaml");
        assert!(reach(&pods));
        // A removed file removes.
        std::fs::remove_file(node.manifests().join("red.yaml")).unwrap();
        agent.wait("red is gone", |_| agent.endpoints().endpoints.iter().all(|endpoint| endpoint.vpc != 2));
        assert!(!reach(&pods));
        node.write("red.yaml", &good);
        until("red is back", || reach(&pods).then_some(())).unwrap();
    });
}

#[test]
fn an_edit_moves_packets() {
    in_node(|| {
        lonely_underlay();
        let node = Node::new("node-1");
        let agent = node.start().ready();
        let pods = red(&agent);
        assert!(reach(&pods));
        let route = "    - dst: 10.0.2.0/24\n      via: {type: connected}\n      subnet: red-b\n";
        node.edit("red.yaml", route, "");
        until("the route is gone", || (!reach(&pods)).then_some(())).unwrap();
        assert!(agent.drops().drops.iter().any(|drop| drop.reason == "no-route" && drop.answered));
        let end = "      subnet: red-a\n---";
        node.edit("red.yaml", end, &format!("      subnet: red-a\n{route}---"));
        until("the route is back", || reach(&pods).then_some(())).unwrap();
    });
}

#[test]
fn a_foreign_vxlan_device_is_named() {
    in_node(|| {
        lonely_underlay();
        run("ip link add flannel.1 type vxlan id 1 dstport 4789 dev up0");
        let node = Node::new("node-1");
        let agent = node.start();
        let found = wait_problem(&agent, "device flannel.1", "UDP port 4789");
        assert!(found.remedy.contains("ip link delete flannel.1"), "{found:?}");
        assert!(!agent.status().ready);
        run("ip link delete flannel.1");
        wait_well(&agent, "device flannel.1");
    });
}

#[test]
fn a_full_map_costs_what_does_not_fit() {
    in_node(|| {
        lonely_underlay();
        let node = Node::new("node-1");
        // Two tenants have two routes each.
        let agent = node.start_with(&["--map-size", "jn_routes=3"]);
        let found = wait_problem(&agent, "map jn_routes", "full");
        assert!(found.message.contains("not in force") && found.remedy.contains("larger"), "{found:?}");
        assert!(!agent.status().ready);
        let pods = red(&agent);
        assert!(reach(&pods), "red's routes came first");
        // Room is used as soon as there is any.
        node.edit("blue.yaml", "    - dst: 10.0.2.0/24\n      via: {type: connected}\n      subnet: blue-b\n", "");
        wait_well(&agent, "map jn_routes");
    });
}

#[test]
fn every_table_that_is_full_is_named() {
    in_node(|| {
        lonely_underlay();
        for map in ["jn_endpoints", "jn_macs", "jn_segments", "jn_policies"] {
            let node = Node::new("node-1");
            let agent = node.start_with(&["--map-size", &format!("{map}=1")]);
            agent.wait("an application", |status| status.revision > 0);
            // The second tenant's Pod is what does not fit where one would.
            let pods = [("red", Pod::new()), ("blue", Pod::new())];
            let mut said = Vec::new();
            for (tenant, pod) in &pods {
                let sandbox = node.sandbox(pod, tenant, "a1", tenant);
                said.extend(node.ask::<Attached>(&Method::Attach(sandbox)).err().map(|error| error.to_string()));
            }
            // What an attachment needs and does not get is told to who asked for it; the rest is a problem that stays.
            said.extend(
                agent.status().problems.iter().map(|problem| format!("{}: {}", problem.object, problem.message)),
            );
            let named = |text: &String| text.contains(&format!("map {map}: {map} is full: 1 elements: "));
            assert!(said.iter().any(named), "{map}: {said:?}");
            agent.kill();
            std::fs::remove_dir_all("/sys/fs/bpf/juneau").unwrap();
        }
    });
}

#[test]
fn a_foreign_program_in_front_of_ours_is_named() {
    in_node(|| {
        lonely_underlay();
        let node = Node::new("node-1");
        let agent = node.start().ready();
        let pods = red(&agent);
        assert!(agent.status().problems.is_empty(), "{:?}", agent.status().problems);
        // Somebody else's program: our own object again, from another directory.
        let device = agent.status().attachments[0].ifindex;
        let config = NodeConfig {
            vtep: [192, 168, 77, 99].into(),
            underlay_ifindex: device,
            vxlan_ifindex: device,
            vxlan_port: 4790,
        };
        let other = Dataplane::open(Options::new("/sys/fs/bpf/other", config)).unwrap();
        other.attach_pod("theirs", device).unwrap();
        let name = agent.status().attachments[0].host_interface.clone();
        let found = wait_problem(&agent, &format!("device {name}"), "somebody else sees packets before ours");
        assert!(found.remedy.contains("behind juneau's"), "{found:?}");
        assert!(agent.status().ready);
        other.remove().unwrap();
        agent.wait("the chain is ours again", |status| status.problems.is_empty());
        assert!(reach(&pods));
    });
}

#[test]
fn a_node_that_moves_is_loaded_anew() {
    in_node(|| {
        lonely_underlay();
        let node = Node::new("node-1");
        let agent = node.start().ready();
        let pods = red(&agent);
        assert!(reach(&pods));
        node.edit("cluster.yaml", "192.168.77.11", "192.168.77.15");
        let found = wait_problem(&agent, "Node/node-1", "no device of this node has its InternalIP 192.168.77.15");
        assert!(!found.remedy.is_empty());
        assert!(reach(&pods), "what runs goes on");
        run("ip addr add 192.168.77.15/24 dev up0");
        let status = agent.wait("the new address", |status| {
            status.ready && status.underlay.as_ref().is_some_and(|underlay| underlay.address.octets()[3] == 15)
        });
        assert_eq!(status.generation, 2);
        assert!(reach(&pods));
    });
}

#[test]
fn the_underlay_s_mtu_is_followed() {
    in_node(|| {
        lonely_underlay();
        let node = Node::new("node-1");
        let agent = node.start().ready();
        let pods = red(&agent);
        let large = "ping -c 1 -W 1 -M do -s 1400 10.0.2.10";
        assert!(pods[0].succeeds(large));
        run("ip link set up0 mtu 1400");
        until("packets above 1350 are refused", || (!pods[0].succeeds(large)).then_some(())).unwrap();
        assert!(agent.drops().drops.iter().any(|drop| drop.reason == "fragmentation-needed"));
        assert!(pods[0].succeeds("ping -c 1 -W 1 -M do -s 1300 10.0.2.10"));
        run("ip link set up0 mtu 1500");
        // The Pod's stack remembers the smaller one until it is told to forget.
        until("large packets pass again", || {
            pods[0].sh("ip route flush cache");
            pods[0].succeeds(large).then_some(())
        })
        .unwrap();
    });
}

#[test]
fn a_missing_directory_and_a_missing_node_are_named() {
    in_node(|| {
        lonely_underlay();
        let node = Node::new("node-9");
        let agent = node.start();
        let found = wait_problem(&agent, "Node/node-9", "missing");
        assert!(found.remedy.contains("--node"), "{found:?}");
        std::fs::rename(node.manifests(), node.directory.path().join("away")).unwrap();
        wait_problem(&agent, &format!("directory {}", node.manifests().display()), "No such file");
        std::fs::rename(node.directory.path().join("away"), node.manifests()).unwrap();
        node.edit("cluster.yaml", "name: node-1", "name: node-9");
        agent.wait("ready", |status| status.ready);
    });
}
