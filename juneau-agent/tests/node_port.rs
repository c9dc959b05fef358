//! Nodes and Pods of the default VPC reach each other, with real packets on two nodes; nobody else does.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;
use support::agent::{Agent, Node, until};
use support::{Pod, in_node};

const PATIENCE: Duration = Duration::from_secs(10);
/// Enough for many segments of 64 KiB, and for what checksums are left to devices.
const BULK: usize = 8 << 20;
const PORTS: [&str; 2] = ["10.244.0.5", "10.244.0.6"];
const UNDERLAY: [&str; 2] = ["192.168.77.11", "192.168.77.12"];

/// The endpoint of a node.
fn endpoint(number: usize) -> String {
    format!(
        "{{apiVersion: juneau.loutres.me/v1alpha1, kind: NetworkEndpoint, \
         metadata: {{name: juneau-node.node-{number}, namespace: juneau-system}}, \
         spec: {{kind: Node, nodeName: node-{number}, subnet: default, address: {}/16, \
         macAddress: '02:00:0a:f4:00:0{}'}}}}\n",
        PORTS[number - 1],
        number + 4,
    )
}

/// Two nodes with an underlay between them, and what their agents read.
struct World {
    places: [Pod; 2],
    nodes: [Node; 2],
}

impl World {
    fn new() -> Self {
        let places = [Pod::node(), Pod::node()];
        let thread = places[1].run(nix::unistd::gettid);
        places[0].sh(&format!("ip link add up0 type veth peer name up0 netns {thread}"));
        for (place, address) in places.iter().zip(UNDERLAY) {
            place.sh(&format!("ip addr add {address}/24 dev up0 && ip link set up0 up"));
        }
        let nodes = [Node::new("node-1"), Node::new("node-2")];
        for node in &nodes {
            node.write("default-vpc.yaml", include_str!("manifests/default-vpc.yaml"));
            node.write("nodes.yaml", &format!("{}---\n{}", endpoint(1), endpoint(2)));
        }
        Self { places, nodes }
    }

    fn start(&self) -> [Agent<'_>; 2] {
        let agents = [0, 1].map(|index| self.nodes[index].start_in(&self.places[index]).ready());
        for index in 0..2 {
            self.wait_for_port(index);
        }
        agents
    }

    /// Waits until the node port of a node is up, with its address and its routes.
    fn wait_for_port(&self, index: usize) {
        let place = &self.places[index];
        let is_up = || {
            let up = place.succeeds(
                "ip link show up dev juneau_node | grep -q . && ip link show up dev juneau_node_h | grep -q .",
            );
            let address = format!("ip -4 addr show dev juneau_node_h | grep -q '{}/16'", PORTS[index]);
            let route = "ip route show dev juneau_node_h | grep -q '10.245.0.0/24 via 10.244.0.1' && ip route show dev juneau_node_h | grep -q '10.244.0.0/16'";
            (up && place.succeeds(&address) && place.succeeds(route)).then_some(())
        };
        until("the node port", is_up).unwrap_or_else(|| panic!("{}", place.sh("ip addr; ip route")));
    }
}

/// Takes one connection: hears much, then says as much.
fn serve(place: &Pod, address: &str) -> JoinHandle<()> {
    let address = address.to_owned();
    let listener = place.run(move || TcpListener::bind(address).unwrap());
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut heard = vec![0; BULK];
        stream.read_exact(&mut heard).unwrap();
        assert!(heard == bulk(), "what the server hears");
        stream.write_all(&heard).unwrap();
    })
}

fn bulk() -> Vec<u8> {
    (0..BULK).map(|i| (i % 251) as u8).collect()
}

fn transfer(client: &Pod, address: &str) {
    let address: std::net::SocketAddr = address.parse().unwrap();
    client.run(move || {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE).unwrap_or_else(|e| panic!("{address}: {e}"));
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let said = bulk();
        stream.write_all(&said).unwrap();
        let mut heard = vec![0; BULK];
        stream.read_exact(&mut heard).unwrap();
        assert!(heard == said, "{address}: what the client hears");
    });
}

fn much_both_ways(client: &Pod, server: &Pod, address: &str) {
    let serving = serve(server, address);
    transfer(client, address);
    serving.join().unwrap();
}

fn ping(from: &Pod, to: &str) -> bool {
    from.succeeds(&format!("ping -c 1 -W 1 {to}"))
}

fn count(agent: &Agent<'_>, hook: &str, reason: &str) -> u64 {
    agent.drops().drops.iter().filter(|drop| drop.hook == hook && drop.reason == reason).map(|drop| drop.packets).sum()
}

#[test]
fn nodes_and_pods_of_their_vpc_reach_each_other_and_nobody_else_does() {
    in_node(|| {
        let world = World::new();
        let [one, two] = &world.places;
        let [here, there] = world.start();
        let [p1, p2, q1, q2, red] = [(); 5].map(|()| Pod::new());
        here.attach(&p1, "default", "p1");
        there.attach(&p2, "default", "p2");
        here.attach(&q1, "default", "q1");
        there.attach(&q2, "default", "q2");
        here.attach(&red, "red", "a1");

        // Nodes to Pods: on the same node and on the other, in the same Subnet and in another.
        for (server, address) in
            [(&p1, "10.244.0.11:80"), (&p2, "10.244.0.12:80"), (&q1, "10.245.0.11:80"), (&q2, "10.245.0.12:80")]
        {
            for node in [one, two] {
                much_both_ways(node, server, address);
            }
        }
        // Pods to nodes, by the node's port and by its address on the underlay, where an API server listens.
        for (index, node) in [one, two].into_iter().enumerate() {
            for pod in [&p1, &p2, &q1, &q2] {
                for address in [PORTS[index], UNDERLAY[index]] {
                    much_both_ways(pod, node, &format!("{address}:6443"));
                }
                assert!(ping(pod, UNDERLAY[index]) && ping(pod, PORTS[index]));
            }
        }
        // A closed port is told at once, and a datagram larger than the MTU is cut.
        assert!(p1.succeeds("ping -c 1 -W 2 -s 4000 192.168.77.12"));
        assert!(one.succeeds("ping -c 1 -W 2 -s 4000 10.244.0.12"));
        // Nodes to each other.
        assert!(ping(one, PORTS[1]) && ping(two, PORTS[0]));
        much_both_ways(one, two, &format!("{}:7000", PORTS[1]));

        // Another VPC and nodes do not meet, though there is a listener, and even with a route.
        let listening = serve(one, "0.0.0.0:6443");
        for address in PORTS.into_iter().chain(UNDERLAY) {
            assert!(!ping(&red, address), "{address}");
        }
        assert!(!red.succeeds("timeout 1 bash -c '</dev/tcp/192.168.77.11/6443'"));
        one.sh("ip route add 10.0.1.0/24 dev juneau_node_h");
        assert!(!ping(one, "10.0.1.10"));
        transfer(&p1, "192.168.77.11:6443");
        listening.join().unwrap();

        // What a node forwards for others has no way in; what it sends from its own address there has.
        let outside = Pod::new();
        let thread = outside.run(nix::unistd::gettid);
        one.sh(&format!(
            "ip link add out type veth peer name out netns {thread} && ip addr add 198.51.100.1/24 dev out && \
             ip link set out up && echo 1 > /proc/sys/net/ipv4/ip_forward"
        ));
        outside.sh(
            "ip addr add 198.51.100.2/24 dev out && ip link set out up && ip route add 10.244.0.0/16 via 198.51.100.1",
        );
        assert!(ping(&outside, "198.51.100.1"));
        assert!(!ping(&outside, "10.244.0.11"));
        assert!(count(&here, "node-port", "node-source") > 0);
        until("the new address is known", || one.succeeds("ping -c 1 -W 1 -I 198.51.100.1 10.244.0.11").then_some(()))
            .unwrap();
        assert!(ping(&p1, "198.51.100.1"));
        for agent in [&here, &there] {
            let status = agent.status();
            assert!(status.problems.is_empty(), "{:#?}", status.problems);
        }
    });
}

#[test]
fn a_node_port_outlives_agents_and_comes_back() {
    in_node(|| {
        let world = World::new();
        let [one, two] = &world.places;
        let [here, there] = world.start();
        let [p1, p2] = [(); 2].map(|()| Pod::new());
        here.attach(&p1, "default", "p1");
        there.attach(&p2, "default", "p2");

        // Connections of the node to Pods here and there.
        let connections = [(&p1, "10.244.0.11:80"), (&p2, "10.244.0.12:80")].map(|(pod, address)| {
            let listener = pod.run(move || TcpListener::bind(address).unwrap());
            let client = one.run(move || TcpStream::connect(address).unwrap());
            let server = listener.accept().unwrap().0;
            (client, server)
        });
        let talk = || {
            for (client, server) in &connections {
                for (mut from, mut to) in [(client, server), (server, client)] {
                    to.set_read_timeout(Some(PATIENCE)).unwrap();
                    from.write_all(b"still there").unwrap();
                    to.read_exact(&mut [0; 11]).unwrap();
                }
            }
        };
        talk();
        let index = || one.sh("for i in juneau_node juneau_node_h; do ip -o link show dev $i | cut -d: -f1; done");
        let before = index();
        here.kill();
        talk();
        let here = world.nodes[0].start_in(one).ready();
        world.wait_for_port(0);
        talk();
        assert_eq!(index(), before, "no new devices");

        // Whatever is taken away comes back, and connections go on.
        for damage in [
            "ip addr flush dev juneau_node_h",
            "ip link set juneau_node_h down",
            "ip link set juneau_node down",
            "ip route del 10.245.0.0/24",
            "ip route del 10.244.0.0/16",
            "ip link set juneau_node_h address 02:00:00:00:00:99",
            "ip link set juneau_node_h mtu 1000",
            "ip link del juneau_node",
            "ip link del juneau_node_h",
        ] {
            one.sh(damage);
            let whole = "ip link show juneau_node_h | grep -q 02:00:0a:f4:00:05 && ip link show juneau_node_h | grep -q 'mtu 1450'";
            world.wait_for_port(0);
            until(damage, || one.succeeds(whole).then_some(())).unwrap();
            until(damage, || ping(one, "10.244.0.11").then_some(())).unwrap();
            talk();
            assert!(ping(&p2, UNDERLAY[0]), "{damage}");
        }

        // Without its endpoint a node has no port.
        assert!(ping(&p1, UNDERLAY[0]) && ping(two, "10.244.0.11"));
        world.nodes[0].write("nodes.yaml", &endpoint(2));
        until("the devices are gone", || (!one.succeeds("ip link show juneau_node")).then_some(())).unwrap();
        assert!(!ping(&p1, UNDERLAY[0]));
        assert!(ping(two, "10.244.0.11"), "the other node has one");
        drop(here);
    });
}

/// A Service of Vpc `default` and its only endpoint, which listens at 8080.
fn service(name: &str, cluster_ip: &str, endpoint: &str) -> String {
    format!(
        "---\n{{apiVersion: v1, kind: Service, metadata: {{name: {name}, namespace: default}}, \
         spec: {{clusterIP: {cluster_ip}, ports: [{{port: 80, targetPort: 8080}}]}}}}\n\
         ---\n{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, \
         metadata: {{name: {name}-1, namespace: default, labels: {{kubernetes.io/service-name: {name}}}}}, \
         ports: [{{name: '', port: 8080}}], endpoints: [{{addresses: ['{endpoint}']}}]}}\n"
    )
}

#[test]
fn processes_and_pods_reach_services() {
    in_node(|| {
        let world = World::new();
        let [one, two] = &world.places;
        for node in &world.nodes {
            node.edit("default-vpc.yaml", "spec: {}", "spec: {service: {consume: true}}");
            let routes = "  routes:\n";
            let to_services = format!("{routes}    - {{dst: 10.96.0.0/12, via: {{type: service}}}}\n");
            node.edit("default-vpc.yaml", routes, &to_services);
            let services = [
                service("here", "10.96.0.11", "10.244.0.11"),
                service("there", "10.96.0.12", "10.245.0.12"),
                service("node", "10.96.0.13", UNDERLAY[1]),
                service("nowhere", "10.96.0.14", "203.0.113.7"),
            ];
            node.write("services.yaml", &services.concat());
        }
        let [here, there] = world.start();
        let [p1, q1, q2] = [(); 3].map(|()| Pod::new());
        here.attach(&p1, "default", "p1");
        here.attach(&q1, "default", "q1");
        there.attach(&q2, "default", "q2");
        let route = "ip route show dev juneau_node_h | grep -q '10.96.0.0/12 via 10.244.0.1'";
        for node in [one, two] {
            until("the route", || node.succeeds(route).then_some(())).unwrap();
        }
        for (server, listens, address) in [
            (&p1, "10.244.0.11:8080", "10.96.0.11:80"),
            (&q2, "10.245.0.12:8080", "10.96.0.12:80"),
            (two, "192.168.77.12:8080", "10.96.0.13:80"),
        ] {
            let listening = server.listen_tcp(listens);
            one.talk_tcp(address);
            listening.join().unwrap();
            let serving = serve(server, listens);
            transfer(&q1, address);
            serving.join().unwrap();
        }
        // Without endpoints it is refused at once, to a process as to a Pod.
        for client in [one, &q1] {
            let refused = client.run(|| TcpStream::connect_timeout(&"10.96.0.14:80".parse().unwrap(), PATIENCE));
            assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
        }

        let services = here.services("default").services;
        let shown: Vec<_> = services
            .iter()
            .map(|port| {
                let backends = port.backends.iter().map(|backend| {
                    let object = backend.object.as_deref().unwrap_or("-");
                    format!("{}:{} {} {object}", backend.address, backend.port, backend.state)
                });
                format!("{} {}", port.object.as_deref().unwrap_or("-"), backends.collect::<Vec<_>>().join(", "))
            })
            .collect();
        assert_eq!(
            shown,
            [
                "default/here 10.244.0.11:8080 chosen default/p1.eth0",
                "default/there 10.245.0.12:8080 chosen default/q2.eth0",
                "default/node 192.168.77.12:8080 chosen -",
                "default/nowhere ",
            ]
        );
        assert!(here.client("services").contains("rejected"), "{}", here.client("services"));
        assert!(here.client("services --vpc default -o json").contains("10.96.0.11"));
        assert!(here.services("77").services.is_empty());
        assert!(here.client("routes").contains("service"));
        let explained = here.client("explain default/q1 --to 10.96.0.11 --protocol tcp --port 80");
        assert!(explained.contains("10.244.0.11:8080"), "{explained}");
        let problems = here.status().problems;
        let [problem] = problems.as_slice() else { panic!("{problems:#?}") };
        assert_eq!(problem.object, "Service/default/nowhere");

        // A switch leaves the node's own way to Services alone.
        here.kill();
        let here = world.nodes[0].start_in_with(one, &["--host-services=off"]).ready();
        until("the route is gone", || (!one.succeeds(route)).then_some(())).unwrap();
        let listening = p1.listen_tcp("10.244.0.11:8080");
        q1.talk_tcp("10.96.0.11:80");
        listening.join().unwrap();
        here.kill();
        let range = ["--service-cluster-ip-range=10.112.0.0/12"];
        let _here = world.nodes[0].start_in_with(one, &range).ready();
        let told = "ip route show dev juneau_node_h | grep -q '10.112.0.0/12 via 10.244.0.1'";
        until("the range that it was told", || (one.succeeds(told) && !one.succeeds(route)).then_some(())).unwrap();
    });
}
