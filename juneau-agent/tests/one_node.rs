//! Pods of two tenants with the same addresses on one node, through the real agent and programs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::BTreeSet;
use std::net::TcpStream;
use std::time::Duration;
use support::agent::Node;
use support::{Pod, in_node, lonely_underlay};

const SHORT: Duration = Duration::from_millis(800);

#[test]
fn pods_reach_their_own_tenant_only() {
    in_node(|| {
        lonely_underlay();
        let node = Node::new("node-1");
        let agent = node.start().ready();
        let pods: Vec<(&str, &str, Pod)> =
            [("red", "a1"), ("red", "b1"), ("blue", "a1")].map(|(tenant, name)| (tenant, name, Pod::new())).into();
        for (tenant, name, pod) in &pods {
            let attached = agent.attach(pod, tenant, name);
            assert_eq!(attached.mtu, 1450);
        }
        let [red_a1, red_b1, blue_a1] = [&pods[0].2, &pods[1].2, &pods[2].2];
        assert!(red_a1.succeeds("ping -c 3 -i 0.1 -W 2 10.0.2.10"));
        // The same address again, of another tenant: its own Pod is not attached, red's is not its.
        assert!(!blue_a1.succeeds("ping -c 2 -i 0.1 -W 1 10.0.2.10"));
        let server = red_b1.listen_tcp("10.0.2.10:8080");
        red_a1.talk_tcp("10.0.2.10:8080");
        server.join().unwrap();
        let server = red_b1.echo_udp("10.0.2.10:9000");
        red_a1.talk_udp("10.0.2.10:9000");
        server.join().unwrap();
        assert!(!blue_a1.run(|| TcpStream::connect_timeout(&"10.0.2.10:8080".parse().unwrap(), SHORT).is_ok()));

        let protocols: BTreeSet<String> = agent.flows().flows.into_iter().map(|flow| flow.protocol).collect();
        assert_eq!(protocols, ["icmp", "tcp", "udp"].map(String::from).into());
        let drops = agent.drops();
        assert!(drops.drops.iter().any(|drop| drop.reason == "arp-answered" && drop.answered), "{drops:?}");
        assert!(drops.delivered.iter().all(|count| count.vpc == 2), "{drops:?}");
        for client in ["status", "drops", "flows", "routes", "endpoints", "explain red/a1 --to 10.0.2.10"] {
            assert!(!agent.client(client).is_empty());
            serde_json::from_str::<serde_json::Value>(&agent.client(&format!("{client} -o json"))).unwrap();
        }
        let explained = agent.client("explain red/a1 --to 10.0.2.10 --protocol tcp --port 80");
        assert!(explained.contains("route    to 10.0.2.10 in table 20: connected, VNI 202"), "{explained}");
        assert!(explained.contains("peer (ok: delivered)"), "{explained}");
    });
}
