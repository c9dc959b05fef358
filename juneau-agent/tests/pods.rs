//! Attaching and detaching: what a container runtime may ask, in any order.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use juneau_agent::protocol::{Attached, CallError, Detached, ErrorCode, Failure, Method, Sandbox};
use std::net::UdpSocket;
use std::path::PathBuf;
use std::time::Duration;
use support::agent::{Node, container_id};
use support::{Pod, in_node, lonely_underlay, run};

fn attach(node: &Node, sandbox: &Sandbox) -> Result<Attached, Failure> {
    match node.ask(&Method::Attach(sandbox.clone())) {
        Ok(attached) => Ok(attached),
        Err(CallError::Refused(failure)) => Err(failure),
        Err(error) => panic!("{error}"),
    }
}

fn detach(node: &Node, sandbox: &Sandbox) -> bool {
    node.ask::<Detached>(&Method::Detach(sandbox.clone())).unwrap().changed
}

#[test]
fn requests_may_come_again_and_late() {
    in_node(|| {
        lonely_underlay();
        let node = Node::new("node-1");
        let agent = node.start().ready();
        let [a1, b1] = [Pod::new(), Pod::new()];
        agent.attach(&b1, "red", "b1");
        let first = node.sandbox(&a1, "red", "a1", "1first");
        let attached = attach(&node, &first).unwrap();
        assert_eq!(attached.address, "10.0.1.10/24");
        assert_eq!((attached.gateway.to_string().as_str(), attached.mac.as_str()), ("10.0.1.1", "02:00:0a:00:01:0a"));
        assert_eq!(attached.host_interface, "eth01first");
        // The same again, with something broken in between: it is mended.
        a1.sh("ip addr flush dev eth0");
        assert_eq!(attach(&node, &first).unwrap(), attached);
        assert!(a1.succeeds("ping -c 1 -W 2 10.0.2.10"));

        // A new sandbox of the same Pod, while the old one was never detached.
        let a1_again = Pod::new();
        let second = node.sandbox(&a1_again, "red", "a1", "2second");
        assert_eq!(attach(&node, &second).unwrap().host_interface, "eth02second");
        assert!(a1_again.succeeds("ping -c 1 -W 2 10.0.2.10"));
        assert!(!a1.succeeds("ip link show eth0"), "the old sandbox has none any more");
        // The old one's late farewell.
        assert!(!detach(&node, &first));
        assert!(a1_again.succeeds("ping -c 1 -W 2 10.0.2.10"));

        assert!(detach(&node, &second));
        assert!(!detach(&node, &second));
        assert!(!a1_again.succeeds("ip link show eth0"));
        let endpoints = agent.endpoints().endpoints;
        assert!(endpoints.iter().all(|endpoint| endpoint.object.as_deref() != Some("red/a1.eth0")), "{endpoints:?}");
        assert_eq!(agent.status().attachments.len(), 1);

        // Whoever gets the address next inherits no flow: the generation of the address has moved.
        agent.attach(&a1, "red", "a1");
        assert!(a1.succeeds("ping -c 1 -W 2 10.0.2.10"));
        // The namespace may go before the farewell.
        drop(a1);
        agent.wait("the device went with its namespace", |status| status.attachments.len() == 1);
        let gone = Sandbox {
            namespace: "red".into(),
            name: "a1".into(),
            netns: PathBuf::from("/nonexistent"),
            container_id: container_id("red", "a1"),
            ..Sandbox::default()
        };
        assert!(!detach(&node, &gone));
    });
}

#[test]
fn a_recycled_address_has_none_of_the_old_flows() {
    in_node(|| {
        lonely_underlay();
        let node = Node::new("node-1");
        let agent = node.start().ready();
        let [a1, old] = [Pod::new(), Pod::new()];
        agent.attach(&a1, "red", "a1");
        agent.attach(&old, "red", "b1");
        // One client, which never changes its ports.
        let client = a1.run(|| {
            let socket = UdpSocket::bind("10.0.1.10:7000").unwrap();
            socket.connect("10.0.2.10:7001").unwrap();
            socket
        });
        let hears = |pod: &Pod, text: &'static [u8]| {
            let server = pod.run(|| UdpSocket::bind("0.0.0.0:7001").unwrap());
            server.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            client.send(text).unwrap();
            let mut bytes = [0; 100];
            let length = server.recv(&mut bytes).unwrap();
            assert_eq!(&bytes[..length], text);
        };
        hears(&old, b"first");
        let device = agent.status().attachments.iter().find(|pod| pod.name == "b1").unwrap().ifindex;
        agent.detach(&old, "red", "b1");
        // Nobody has the address: the flow's way is not used any more.
        client.send(b"lost").unwrap();
        let new = Pod::new();
        agent.attach(&new, "red", "b1");
        hears(&new, b"second");
        let flows = agent.flows().flows;
        assert!(flows.iter().all(|flow| flow.ifindex != device), "{flows:?}");
    });
}

#[test]
fn requests_that_cannot_be_met_say_why() {
    in_node(|| {
        lonely_underlay();
        let node = Node::new("node-1");
        let agent = node.start().ready();
        let pod = Pod::new();
        let refused = |sandbox: &Sandbox| attach(&node, sandbox).unwrap_err();

        let unknown = refused(&node.sandbox(&pod, "red", "nobody", "c"));
        assert_eq!(unknown.code, ErrorCode::TryAgain);
        assert!(unknown.message.contains("NetworkEndpoint/red/nobody.eth0"), "{unknown}");
        let elsewhere = refused(&node.sandbox(&pod, "red", "a2", "c"));
        assert_eq!(elsewhere.code, ErrorCode::InvalidRequest);
        assert!(elsewhere.message.contains("node-2"), "{elsewhere}");
        let mut sandbox = node.sandbox(&pod, "red", "a1", "c");
        sandbox.netns = "/nonexistent".into();
        assert_eq!(refused(&sandbox).code, ErrorCode::InvalidRequest);
        sandbox.netns = "/etc/passwd".into();
        assert_eq!(refused(&sandbox).code, ErrorCode::InvalidRequest);
        sandbox.netns = format!("/proc/{}/task/{}/ns/net", std::process::id(), nix::unistd::gettid()).into();
        assert!(refused(&sandbox).message.contains("the node's own"), "{}", refused(&sandbox));
        assert_eq!(refused(&node.sandbox(&pod, "red", "a1", "../c")).code, ErrorCode::InvalidRequest);

        // An eth0 of somebody else is not touched.
        pod.sh("ip link add eth0 type veth peer name eth1");
        let taken = refused(&node.sandbox(&pod, "red", "a1", "c"));
        assert_eq!(taken.code, ErrorCode::Conflict, "{taken}");
        assert!(pod.sh("ip -o link show eth0").contains("eth0@eth1"));
        assert_eq!(run("ip -o link show type veth | grep -c eth0 || true").trim(), "0", "nothing is left of it");

        // A manifest that comes later makes the same request succeed.
        pod.sh("ip link delete eth0");
        let red = std::fs::read_to_string(node.manifests().join("red.yaml")).unwrap();
        std::fs::remove_file(node.manifests().join("red.yaml")).unwrap();
        agent.wait("red is gone", |_| agent.endpoints().endpoints.iter().all(|endpoint| endpoint.vpc != 2));
        let sandbox = node.sandbox(&pod, "red", "a1", "c");
        assert_eq!(refused(&sandbox).code, ErrorCode::TryAgain);
        node.write("red.yaml", &red);
        attach(&node, &sandbox).unwrap();
    });
}

#[test]
fn only_root_is_served() {
    in_node(|| {
        lonely_underlay();
        let node = Node::new("node-1");
        let agent = node.start().ready();
        let client = format!("{} status --socket {}", env!("CARGO_BIN_EXE_juneau-agent"), node.socket().display());
        let copy = node.directory.path().join("client");
        std::fs::copy(env!("CARGO_BIN_EXE_juneau-agent"), &copy).unwrap();
        run(&format!("chmod 755 {} {}", node.directory.path().display(), copy.display()));
        run(&client);
        let as_nobody = format!(
            "setpriv --reuid 65534 --clear-groups {} status --socket {} 2>&1 || true",
            copy.display(),
            node.socket().display()
        );
        assert!(run(&as_nobody).contains("Permission denied"), "{}", run(&as_nobody));
        // Even where the file lets them in.
        run(&format!("chmod 666 {}", node.socket().display()));
        assert!(run(&as_nobody).contains("may not use the agent's socket"), "{}", run(&as_nobody));
        assert!(agent.status().ready);
    });
}

#[test]
fn metrics_are_told_over_their_socket() {
    in_node(|| {
        use std::io::{Read, Write};
        lonely_underlay();
        let node = Node::new("node-1");
        let agent = node.start().ready();
        let [a1, b1] = [Pod::new(), Pod::new()];
        agent.attach(&a1, "red", "a1");
        agent.attach(&b1, "red", "b1");
        assert!(a1.succeeds("ping -c 2 -i 0.1 -W 2 10.0.2.10"));
        let path = node.directory.path().join("metrics.sock");
        let mut stream = std::os::unix::net::UnixStream::connect(path).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: node\r\n\r\n").unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        for line in [
            r#"juneau_answers_total{hook="pod",reason="arp-answered"}"#,
            r#"juneau_delivered_packets_total{vpc="2",direction="from-pod"} 4"#,
            r#"juneau_map_entries{map="jn_flows"} 2"#,
            r#"juneau_map_entries{map="jn_interfaces"} 2"#,
            "juneau_ready 1",
            "juneau_attachments 2",
        ] {
            assert!(page.contains(line), "{line} is not in\n{page}");
        }
    });
}
