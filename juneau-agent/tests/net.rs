//! The netlink half of the agent, in namespaces of its own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use juneau_agent::net::{Namespace, Netlink, SYSCTL_DIR};
use juneau_agent::pod::{INTERFACE, Record, Wiring, bring_up, create, other_end};
use std::path::Path;
use support::{Pod, in_node, run};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn wiring() -> Wiring {
    Wiring {
        address: "10.0.1.10/24".parse().unwrap(),
        gateway: Some("10.0.1.1".parse().unwrap()),
        mac: "02:00:00:00:01:0a".parse().unwrap(),
        mtu: 1450,
    }
}

#[test]
fn a_pod_gets_its_interface() {
    in_node(|| {
        let pod = Pod::new();
        runtime().block_on(async {
            let netlink = Netlink::open().unwrap();
            let namespace = Namespace::open(&pod.netns).unwrap();
            assert!(!namespace.is(&Namespace::current().unwrap()).unwrap());
            let record = Record::new("red", "a", INTERFACE, "0123456789abcdef").unwrap();
            let host = create(&netlink, &record, &namespace, &wiring(), Path::new(SYSCTL_DIR)).await.unwrap();
            let inside = Netlink::open_in(&namespace).unwrap();
            assert!(other_end(&inside, &host, INTERFACE).await.unwrap().is_some());
            for _ in 0..2 {
                bring_up(&netlink, &inside, &host, INTERFACE, &wiring()).await.unwrap();
            }
            let again = create(&netlink, &record, &namespace, &wiring(), Path::new(SYSCTL_DIR)).await.unwrap_err();
            assert_eq!(again.errno(), Some(nix::libc::EEXIST), "{again}");
            let found = netlink.link("eth00123456789a").await.unwrap().unwrap();
            assert_eq!(Record::from_alias(found.alias.as_deref().unwrap()).unwrap(), record);
            assert_eq!((found.kind.as_deref(), found.up, found.mtu), (Some("veth"), true, 1450));
            assert_eq!(netlink.link("absent").await.unwrap(), None);
            netlink.delete_link(found.index).await.unwrap();
            netlink.delete_link(found.index).await.unwrap();
        });
        // The peer went with it.
        assert!(!pod.succeeds("ip link show eth0"));
    });
}

#[test]
fn the_pod_sees_what_was_asked_for() {
    in_node(|| {
        let pod = Pod::new();
        let netns = pod.netns.clone();
        runtime().block_on(async {
            let netlink = Netlink::open().unwrap();
            let namespace = Namespace::open(&netns).unwrap();
            let record = Record::new("red", "a", INTERFACE, "0123456789abcdef").unwrap();
            let host = create(&netlink, &record, &namespace, &wiring(), Path::new(SYSCTL_DIR)).await.unwrap();
            let inside = Netlink::open_in(&namespace).unwrap();
            assert_eq!(inside.default_route().await.unwrap(), None);
            bring_up(&netlink, &inside, &host, INTERFACE, &wiring()).await.unwrap();
            let peer = other_end(&inside, &host, INTERFACE).await.unwrap().unwrap();
            assert_eq!(inside.default_route().await.unwrap(), Some((peer.index, "10.0.1.1".parse().unwrap())));
        });
        let link = pod.sh("ip -o link show eth0");
        assert!(link.contains("02:00:00:00:01:0a") && link.contains("mtu 1450"), "{link}");
        assert!(pod.sh("ip -o -4 addr show eth0").contains("10.0.1.10/24"));
        assert!(pod.sh("ip route").contains("default via 10.0.1.1 dev eth0"));
        assert_eq!(run("cat /proc/sys/net/ipv6/conf/eth00123456789a/disable_ipv6").trim(), "1");
        assert!(run("ip -o link show group 27246").contains("eth00123456789a"));
    });
}

#[test]
fn ways_and_managed_neighbours() {
    in_node(|| {
        run("ip link add up0 type veth peer name up1 && ip link set up0 up && ip link set up1 up");
        run("ip addr add 192.0.2.1/24 dev up0 && ip route add 198.51.100.0/24 via 192.0.2.254 mtu 1400");
        runtime().block_on(async {
            let netlink = Netlink::open().unwrap();
            let device = netlink.link("up0").await.unwrap().unwrap().index;
            let near = netlink.way_to("192.0.2.9".parse().unwrap()).await.unwrap().unwrap();
            assert_eq!((near.ifindex, near.next_hop, near.mtu), (device, "192.0.2.9".parse().unwrap(), None));
            let far = netlink.way_to("198.51.100.7".parse().unwrap()).await.unwrap().unwrap();
            assert_eq!((far.next_hop, far.mtu), ("192.0.2.254".parse().unwrap(), Some(1400)));
            assert_eq!(netlink.way_to("203.0.113.1".parse().unwrap()).await.unwrap(), None);
            for _ in 0..2 {
                netlink.add_managed_neighbour(device, near.next_hop).await.unwrap();
            }
            assert_eq!(netlink.managed_neighbours().await.unwrap(), [(device, near.next_hop)]);
            netlink.delete_neighbour(device, near.next_hop).await.unwrap();
            netlink.delete_neighbour(device, near.next_hop).await.unwrap();
            assert_eq!(netlink.managed_neighbours().await.unwrap(), []);
        });
    });
}

#[test]
fn vxlan_devices_are_recognised() {
    in_node(|| {
        run("ip link add other type vxlan id 42 dstport 4790");
        runtime().block_on(async {
            let netlink = Netlink::open().unwrap();
            netlink.add_external_vxlan("juneau.vxlan", 4789, 65000, 27246).await.unwrap();
            let links = netlink.links().await.unwrap();
            let vxlan = |name: &str| links.iter().find(|link| link.name == name).unwrap().vxlan.clone().unwrap();
            let ours = vxlan("juneau.vxlan");
            assert_eq!((ours.port, ours.external), (4789, true));
            let other = vxlan("other");
            assert_eq!((other.port, other.external, other.vni), (4790, false, 42));
        });
    });
}

#[test]
fn changes_are_told() {
    in_node(|| {
        runtime().block_on(async {
            let (sender, mut changes) = tokio::sync::mpsc::channel(1);
            let watching = juneau_agent::net::watch(sender).unwrap();
            run("ip link add up0 type veth peer name up1");
            changes.recv().await.unwrap();
            watching.abort();
        });
    });
}
