//! Pods of two tenants with the same addresses on two nodes, over a real underlay.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use support::agent::Node;
use support::{Pod, in_node, run};

#[test]
fn nodes_carry_each_tenant_to_its_own() {
    in_node(|| {
        let place = Pod::node();
        let thread = place.run(nix::unistd::gettid);
        run(&format!("ip link add up0 type veth peer name up0 netns {thread}"));
        run("ip addr add 192.168.77.11/24 dev up0 && ip link set up0 up");
        place.sh("ip addr add 192.168.77.12/24 dev up0 && ip link set up0 up");
        let (first, second) = (Node::new("node-1"), Node::new("node-2"));
        let here = first.start().ready();
        let there = second.start_in(&place).ready();

        let [red_a1, blue_a1] = [Pod::new(), Pod::new()];
        here.attach(&red_a1, "red", "a1");
        here.attach(&blue_a1, "blue", "a1");
        let [red_a2, red_b2, blue_a2] = [Pod::new(), Pod::new(), Pod::new()];
        there.attach(&red_a2, "red", "a2");
        there.attach(&red_b2, "red", "b2");
        there.attach(&blue_a2, "blue", "a2");

        // The same Subnet, and routed.
        for target in ["10.0.1.20", "10.0.2.20"] {
            assert!(red_a1.succeeds(&format!("ping -c 3 -i 0.1 -W 2 {target}")), "{target}");
        }
        // Larger than the MTU without DF: cut on the way, by the VXLAN device.
        assert!(red_a1.succeeds("ping -c 2 -i 0.1 -W 2 -s 4000 10.0.2.20"));
        assert!(blue_a1.succeeds("ping -c 2 -i 0.1 -W 2 10.0.1.20"));
        assert!(!blue_a1.succeeds("ping -c 2 -i 0.1 -W 1 10.0.2.20"), "blue's b2 is not attached, red's is not blue's");

        // Each tenant's server hears its own client, though all addresses and ports are equal.
        for (client, server, port) in [(&red_a1, &red_a2, "10.0.1.20:8080"), (&blue_a1, &blue_a2, "10.0.1.20:8080")] {
            let listening = server.listen_tcp(port);
            client.talk_tcp(port);
            listening.join().unwrap();
            let listening = server.echo_udp(port);
            client.talk_udp(port);
            listening.join().unwrap();
        }

        // What node-2 would do with what node-1 sends, and with what it would not believe.
        let ask = |vtep: &str, vni: u32| {
            let way = format!("--from-node {vtep} --vni {vni} --from 10.0.1.10");
            there.client(&format!("explain red/b2 --to 10.0.2.20 --protocol tcp --port 81 {way}"))
        };
        assert!(ask("192.168.77.11", 202).contains("peer (ok: delivered), ifindex "), "{}", ask("192.168.77.11", 202));
        assert!(ask("192.168.77.11", 201).contains("drop (overlay-destination: "), "{}", ask("192.168.77.11", 201));
        assert!(ask("192.168.77.99", 202).contains("drop (vtep-unknown: "), "{}", ask("192.168.77.99", 202));

        // The fast way was taken, and nothing was lost on it.
        let way = run("ip neigh show dev up0");
        assert!(way.contains("192.168.77.12") && way.contains("managed"), "{way}");
        // But for the two packets to a Pod that is described, yet not attached.
        for (agent, lost) in [(&here, vec![]), (&there, vec![("overlay-destination", 2)])] {
            let drops = agent.drops();
            let overlay: Vec<(&str, u64)> = drops
                .drops
                .iter()
                .filter(|drop| drop.hook != "pod")
                .map(|drop| (drop.reason.as_str(), drop.packets))
                .collect();
            assert_eq!(overlay, lost);
            assert!(drops.delivered.iter().any(|count| count.direction == "from-overlay" && count.packets > 10));
        }
    });
}
