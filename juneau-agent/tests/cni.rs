//! The CNI plugin as it is shipped, a real agent, and Pods in namespaces.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use juneau_agent::protocol::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::agent::{Agent, Node, until};
use support::cni::{Runtime, plugin};
use support::{Pod, in_node, lonely_underlay, run};

/// Nothing of ours for a Pod is left on the node.
fn nothing_left(agent: &Agent<'_>) {
    assert_eq!(agent.status().attachments.len(), 0);
    assert_eq!(run("ip -o link show group 27246 type veth").trim(), "");
    assert!(agent.endpoints().endpoints.iter().all(|endpoint| endpoint.ifindex == 0), "{:?}", agent.endpoints());
    let links = std::fs::read_dir("/sys/fs/bpf/juneau/links").unwrap();
    let names: Vec<_> = links.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(names.iter().all(|name| !name.contains("eth")), "{names:?}");
}

/// red's a1, with an interface in red-b as well.
fn ask_for_two(node: &Node) {
    node.edit(
        "red.yaml",
        "  name: a1\n  namespace: red\n  uid: red-a1-0001\n  annotations:\n",
        "  name: a1\n  namespace: red\n  uid: red-a1-0001\n  annotations:\n    \
         juneau.loutres.me/networks: '[{\"interface\":\"eth1\",\"subnet\":\"red-b\"}]'\n",
    );
}

/// What the operator makes of it.
const SECOND: &str = "
apiVersion: juneau.loutres.me/v1alpha1
kind: NetworkInterface
metadata: {name: a1.eth1, namespace: red}
spec:
  podRef: {name: a1, interface: eth1, uid: red-a1-0001}
  nodeName: node-1
  subnet: red-b
status: {phase: Ready, address: 10.0.2.11/24}
---
apiVersion: juneau.loutres.me/v1alpha1
kind: NetworkEndpoint
metadata: {name: a1.eth1, namespace: red}
spec:
  kind: Pod
  nodeName: node-1
  subnet: red-b
  address: 10.0.2.11/24
  macAddress: 02:00:0a:00:02:0b
  podRef: {name: a1, interface: eth1, uid: red-a1-0001}
";

#[test]
fn from_add_to_del_nothing_is_missing_and_nothing_left() {
    in_node(|| {
        lonely_underlay();
        let node = Node::new("node-1");
        let agent = node.start().ready();
        let [a1, b1] = [Pod::new(), Pod::new()];
        let first = Runtime::new(&node, &a1, "red", "a1", "1aaaaaaaaaaa");
        let other = Runtime::new(&node, &b1, "red", "b1", "2bbbbbbbbbbb");
        let (result, _) = (first.added(), other.added());
        assert_eq!(
            result,
            json!({
                "cniVersion": "1.1.0",
                "interfaces": [
                    {"name": "eth0", "mac": "02:00:0a:00:01:0a", "mtu": 1450, "sandbox": a1.netns},
                    {"name": "eth01aaaaaaaaaa", "mtu": 1450},
                ],
                "ips": [{"address": "10.0.1.10/24", "gateway": "10.0.1.1", "interface": 0}],
                "routes": [{"dst": "0.0.0.0/0", "gw": "10.0.1.1"}],
                "dns": {},
            })
        );
        // The first packet arrives: ADD has waited for it.
        assert!(a1.succeeds("ping -c 1 -W 2 10.0.2.10"));
        assert_eq!(first.check(&result), Ok(Value::Null));
        assert_eq!(first.run("STATUS", &Value::Null), Ok(Value::Null));

        // What a check finds, and what a further ADD mends.
        for (damage, what) in [
            ("ip addr flush dev eth0", "address 10.0.1.10/24"),
            ("ip route del default", "default route"),
            ("ip link set eth0 down", "is down"),
            ("ip link set eth0 address 02:00:00:00:00:01", "MAC address"),
        ] {
            a1.sh(damage);
            let (code, message) = first.check(&result).unwrap_err();
            assert!(code == 103 && message.contains(what), "{damage}: {message}");
            assert_eq!(first.add().unwrap(), result);
            assert_eq!(first.check(&result), Ok(Value::Null));
        }
        assert!(a1.succeeds("ping -c 1 -W 2 10.0.2.10"));

        // Sandboxes that are not listed go, the others stay.
        let valid = json!({"cni.dev/valid-attachments": [{"containerID": "1aaaaaaaaaaa", "ifname": "eth0"}]});
        assert_eq!(first.run("GC", &valid), Ok(Value::Null));
        assert!(!b1.succeeds("ip link show eth0"));
        assert!(a1.succeeds("ping -c 1 -W 2 10.0.1.1 || ip link show eth0"));
        assert_eq!(other.check(&result).unwrap_err().0, 3);

        // As a runtime ends a sandbox: once with, once without its namespace.
        first.del();
        first.clone().with_netns("").del();
        other.with_netns("/nonexistent").del();
        nothing_left(&agent);
        // The sandbox's id comes back.
        assert_eq!(first.added(), result);
        first.del();
        nothing_left(&agent);
    });
}

#[test]
fn all_interfaces_or_none() {
    in_node(|| {
        lonely_underlay();
        let node = Node::new("node-1");
        ask_for_two(&node);
        let agent = node.start().ready();
        let [a1, b1] = [Pod::new(), Pod::new()];
        Runtime::new(&node, &b1, "red", "b1", "2bbbbbbbbbbb").added();
        let runtime = Runtime::new(&node, &a1, "red", "a1", "1aaaaaaaaaaa");
        // Its second interface has no endpoint yet.
        let (code, message) = runtime.add().unwrap_err();
        assert!(code == 11 && message.contains("NetworkEndpoint/red/a1.eth1"), "{message}");
        assert!(!a1.succeeds("ip link show eth0"));

        node.write("second.yaml", SECOND);
        let result = runtime.added();
        let names: Vec<_> =
            result["interfaces"].as_array().unwrap().iter().map(|i| i["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["eth0", "eth1", "eth01aaaaaaaaaa", "eth11aaaaaaaaaa"]);
        assert_eq!(result["ips"][1], json!({"address": "10.0.2.11/24", "interface": 1}));
        assert!(a1.succeeds("ping -c 1 -W 2 10.0.2.10"), "by the Subnet of eth1");
        assert!(b1.succeeds("ping -c 1 -W 2 10.0.2.11"));
        assert!(a1.sh("ip route get 10.0.2.10").contains("dev eth1 src 10.0.2.11"));
        let default = a1.sh("ip route show default");
        assert!(default.starts_with("default via 10.0.1.1 dev eth0") && default.lines().count() == 1, "{default}");
        assert_eq!(runtime.check(&result), Ok(Value::Null));
        assert_eq!(agent.status().attachments.len(), 3);
        a1.sh("ip link set eth1 down");
        let (code, message) = runtime.check(&result).unwrap_err();
        assert!(code == 103 && message.contains("red/a1.eth1"), "{message}");
        assert_eq!(runtime.add().unwrap(), result);

        // The agent is another process: both are still there, and go together.
        agent.kill();
        let agent = node.start().ready();
        assert_eq!(runtime.check(&result), Ok(Value::Null));
        runtime.del();
        assert!(!a1.succeeds("ip link show eth0") && !a1.succeeds("ip link show eth1"));

        // A name that is taken costs both.
        a1.sh("ip link add eth1 type veth peer name eth9");
        let (code, message) = runtime.add().unwrap_err();
        assert!(code == 101 && message.contains("eth1"), "{message}");
        assert!(!a1.succeeds("ip link show eth0"));
        a1.sh("ip link del eth1");
        runtime.added();
        // An annotation that grew to nonsense of a megabyte is none, and nobody else notices.
        node.edit(
            "red.yaml",
            "'[{\"interface\":\"eth1\"",
            &format!("'{}[{{\"interface\":\"eth1\"", "x".repeat(1 << 20)),
        );
        until("the annotation is read", || runtime.add().err().filter(|(_, said)| said.contains("annotations")))
            .unwrap();
        assert!(b1.succeeds("ip link show eth0"));
        runtime.del();
        Runtime::new(&node, &b1, "red", "b1", "2bbbbbbbbbbb").del();
        nothing_left(&agent);
    });
}

#[test]
fn an_add_waits_for_objects_that_are_on_their_way() {
    in_node(|| {
        lonely_underlay();
        let node = Node::new("node-1");
        let red = std::fs::read_to_string(node.manifests().join("red.yaml")).unwrap();
        std::fs::remove_file(node.manifests().join("red.yaml")).unwrap();
        let agent = node.start().ready();
        let a1 = Pod::new();
        let runtime = Runtime::new(&node, &a1, "red", "a1", "1aaaaaaaaaaa");
        let begun = Instant::now();
        let (code, message) = runtime.add().unwrap_err();
        assert!(code == 11 && message.contains("NetworkEndpoint/red/a1.eth0"), "{message}");
        let waited = begun.elapsed();
        assert!(waited > Duration::from_millis(1900) && waited < Duration::from_secs(5), "{waited:?}");

        std::thread::scope(|scope| {
            let begun = Instant::now();
            // In the namespaces of this thread.
            let early = scope.spawn(|| runtime.add());
            std::thread::sleep(Duration::from_millis(500));
            assert!(!early.is_finished(), "nothing is there yet");
            // Others are answered meanwhile.
            assert_eq!(agent.status().attachments.len(), 0);
            node.write("red.yaml", &red);
            early.join().unwrap().unwrap();
            assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
        });
        assert!(a1.succeeds("ping -c 1 -W 2 10.0.1.1 || ip link show eth0"));
        runtime.del();

        // The end of a sandbox is the end of its waiting.
        std::fs::remove_file(node.manifests().join("red.yaml")).unwrap();
        agent.wait("red is gone", |_| agent.endpoints().endpoints.iter().all(|endpoint| endpoint.vpc != 2));
        std::thread::scope(|scope| {
            let begun = Instant::now();
            let early = scope.spawn(|| runtime.add());
            std::thread::sleep(Duration::from_millis(300));
            runtime.del();
            let (code, message) = early.join().unwrap().unwrap_err();
            assert!(code == 11 && message.contains("detached meanwhile"), "{message}");
            assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
        });
        node.write("red.yaml", &red);
        agent.wait("red is back", |_| agent.endpoints().endpoints.iter().any(|endpoint| endpoint.vpc == 2));
        nothing_left(&agent);
    });
}

/// Pods of red that all come at once, with what the operator makes of them.
const CROWD: [u8; 12] = [101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112];

fn crowd() -> String {
    let one = |number: &u8| {
        format!(
            "---
apiVersion: v1
kind: Pod
metadata: {{name: c{number}, namespace: red, uid: red-c{number}-0001, annotations: {{juneau.loutres.me/subnet: red-a}}}}
spec: {{nodeName: node-1, containers: [{{name: main, image: registry.k8s.io/pause}}]}}
---
apiVersion: juneau.loutres.me/v1alpha1
kind: NetworkInterface
metadata: {{name: c{number}.eth0, namespace: red}}
spec: {{podRef: {{name: c{number}, interface: eth0, uid: red-c{number}-0001}}, nodeName: node-1, subnet: red-a}}
status: {{phase: Ready, address: 10.0.1.{number}/24}}
---
apiVersion: juneau.loutres.me/v1alpha1
kind: NetworkEndpoint
metadata: {{name: c{number}.eth0, namespace: red}}
spec:
  kind: Pod
  nodeName: node-1
  subnet: red-a
  address: 10.0.1.{number}/24
  macAddress: 02:00:0a:00:01:{number:02x}
  podRef: {{name: c{number}, interface: eth0, uid: red-c{number}-0001}}
"
        )
    };
    CROWD.iter().map(one).collect()
}

/// How many are connected to the agent.
fn connections(node: &Node) -> usize {
    let (socket, sockets) = (node.socket(), std::fs::read_to_string("/proc/thread-self/net/unix").unwrap());
    // Reference count, protocol, flags, type, state (3: connected), inode, path.
    let fields = sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    fields.filter(|fields| fields.get(5) == Some(&"03") && fields.get(7) == socket.to_str().as_ref()).count()
}

#[test]
fn many_that_wait_hold_up_nobody_and_are_told_by_an_event() {
    in_node(|| {
        lonely_underlay();
        let node = Node::new("node-1");
        let agent = node.start_without_looking().ready();
        let pods = CROWD.map(|_| Pod::new());
        let runtimes: Vec<Runtime> = CROWD
            .iter()
            .zip(&pods)
            .map(|(number, pod)| Runtime::new(&node, pod, "red", &format!("c{number}"), &format!("{number}aaaaaaaaa")))
            .collect();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let adds: Vec<_> = runtimes.iter().map(|runtime| scope.spawn(|| runtime.add())).collect();
            until("all have asked", || (connections(&node) == CROWD.len()).then_some(())).unwrap();
            assert_eq!(agent.status().attachments.len(), 0);
            // Two ask all the time, so that there always is a question.
            let watchers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        let mut seen = BTreeSet::new();
                        while !done.load(Ordering::SeqCst) {
                            seen.insert(agent.status().attachments.len());
                        }
                        seen
                    })
                })
                .collect();
            node.write("crowd.yaml", &crowd());
            let outcomes: Vec<_> = adds.into_iter().map(|add| add.join().unwrap()).collect();
            done.store(true, Ordering::SeqCst);
            assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
            let seen: BTreeSet<usize> = watchers.into_iter().flat_map(|watcher| watcher.join().unwrap()).collect();
            // While some were attached and others were not, somebody was answered.
            let between = seen.iter().filter(|count| (1..CROWD.len()).contains(count)).count();
            assert!(between >= 3, "answered when so many were attached: {seen:?}");
        });
        for runtime in &runtimes {
            runtime.del();
        }
        nothing_left(&agent);
    });
}

#[test]
fn of_two_pods_with_one_name_the_objects_say_which() {
    in_node(|| {
        lonely_underlay();
        let node = Node::new("node-1");
        let agent = node.start().ready();
        let [old, new] = [Pod::new(), Pod::new()];
        let older = Runtime::new(&node, &old, "red", "a1", "1aaaaaaaaaaa");
        older.added();
        // The Pod was made anew under its name; the runtime is quicker than the objects, then slower.
        let newer = Runtime::new(&node, &new, "red", "a1", "2bbbbbbbbbbb").with_uid("red-a1-0002");
        let (code, message) = newer.add().unwrap_err();
        assert!(code == 11 && message.contains("red-a1-0001") && message.contains("red-a1-0002"), "{message}");
        assert!(old.succeeds("ip link show eth0"), "nobody has taken its place yet");
        let text = std::fs::read_to_string(node.manifests().join("red.yaml")).unwrap();
        node.write("red.yaml", &text.replace("red-a1-0001", "red-a1-0002"));
        newer.added();
        assert!(!old.succeeds("ip link show eth0"));
        assert_eq!(older.add().unwrap_err().0, 11);
        // The older one's farewell is late, and comes again.
        older.del();
        older.clone().with_netns("").del();
        assert!(new.succeeds("ip link show eth0"));
        newer.del();
        nothing_left(&agent);
    });
}

#[test]
fn whoever_races_there_is_one_interface() {
    in_node(|| {
        lonely_underlay();
        let node = Node::new("node-1");
        let agent = node.start().ready();
        let pods = [Pod::new(), Pod::new()];
        let runtimes = [
            Runtime::new(&node, &pods[0], "red", "a1", "1aaaaaaaaaaa"),
            Runtime::new(&node, &pods[1], "red", "a1", "2bbbbbbbbbbb"),
        ];
        runtimes[0].added();
        for round in 0..8 {
            // Each sandbox twice, and in some rounds the end of one of them.
            let mut racers: Vec<_> = (0..4)
                .map(|racer| {
                    let runtime = runtimes[racer % 2].clone();
                    std::thread::spawn(move || drop(runtime.added()))
                })
                .collect();
            if round % 2 == 1 {
                let runtime = runtimes[0].clone();
                racers.push(std::thread::spawn(move || runtime.del()));
            }
            racers.into_iter().for_each(|racer| racer.join().unwrap());
            let attachments = agent.status().attachments;
            assert!(attachments.len() <= 1, "{attachments:?}");
            let winners = pods.iter().filter(|pod| pod.succeeds("ip link show eth0")).count();
            assert_eq!(winners, attachments.len(), "{attachments:?}");
        }
        runtimes.iter().for_each(Runtime::del);
        nothing_left(&agent);
    });
}

#[test]
fn an_agent_that_is_away_is_waited_for_and_never_in_the_way_of_an_end() {
    in_node(|| {
        lonely_underlay();
        let node = Node::new("node-1");
        let [a1, b1] = [Pod::new(), Pod::new()];
        let runtime = Runtime::new(&node, &a1, "red", "a1", "1aaaaaaaaaaa");
        assert_eq!(runtime.add().unwrap_err().0, 11);
        assert_eq!(runtime.run("STATUS", &Value::Null).unwrap_err().0, 50);
        runtime.del();

        // Killed between two writes of an ADD, and again at the next write of the next one.
        for write in [18, 20, 22] {
            let mut command = node.command();
            command.env("JUNEAU_FAILPOINT", write.to_string());
            let mut child = command.spawn().unwrap();
            until("the agent dies", || {
                let _ = runtime.add();
                child.try_wait().unwrap()
            })
            .unwrap();
        }
        let agent = node.start().ready();
        let result = runtime.added();
        Runtime::new(&node, &b1, "red", "b1", "2bbbbbbbbbbb").added();
        assert!(a1.succeeds("ping -c 1 -W 2 10.0.2.10"));
        assert_eq!(runtime.check(&result), Ok(Value::Null));

        // An end that no agent hears: the namespace goes, and the device with it.
        agent.kill();
        runtime.del();
        drop(a1);
        let agent = node.start().ready();
        agent.wait("one is left", |status| status.attachments.len() == 1);
        // One whose namespace somebody holds: it goes when the Pod's object does.
        agent.kill();
        Runtime::new(&node, &b1, "red", "b1", "2bbbbbbbbbbb").del();
        let agent = node.start().ready();
        assert!(b1.succeeds("ip link show eth0"));
        std::fs::remove_file(node.manifests().join("red.yaml")).unwrap();
        agent.wait("its interface is removed", |status| status.attachments.is_empty());
        nothing_left(&agent);
    });
}

#[test]
fn a_namespace_that_vanishes_takes_its_add_with_it() {
    in_node(|| {
        lonely_underlay();
        let node = Node::new("node-1");
        let agent = node.start().ready();
        run("mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns");
        let gone = Runtime::new(&node, &Pod::new(), "red", "a1", "1aaaaaaaaaaa").with_netns("/run/netns/gone");
        assert_eq!(gone.add().unwrap_err().0, 4);
        let mut seen = std::collections::BTreeSet::new();
        for round in 0..30 {
            run("ip netns add gone");
            let add = {
                let gone = gone.clone();
                std::thread::spawn(move || gone.add().map_err(|(code, _)| code))
            };
            std::thread::sleep(Duration::from_micros(1000 * round));
            run("ip netns del gone");
            seen.insert(add.join().unwrap().err());
            // A failed ADD is followed by a DEL, a good one by another.
            gone.del();
            let status = agent.wait("settled", |status| status.attachments.is_empty());
            assert!(status.ready, "{:?}", status.problems);
        }
        assert!(seen.is_subset(&[None, Some(3), Some(4), Some(11), Some(102)].into()), "{seen:?}");
        nothing_left(&agent);
    });
}

#[test]
fn the_plugin_is_put_in_place_when_the_node_is_ready() {
    in_node(|| {
        let node = Node::new("node-1");
        let [bin, conf] = ["bin", "net.d"].map(|name| node.directory.path().join(name));
        let arguments = [
            "--cni-bin-dir",
            bin.to_str().unwrap(),
            "--cni-conf-dir",
            conf.to_str().unwrap(),
            "--cni-plugin",
            plugin().to_str().unwrap(),
            "--cni-version",
            "1.1.0",
        ];
        // No underlay yet: Pods could not be attached.
        let agent = node.start_with(&arguments);
        agent.wait("a problem", |status| !status.ready && !status.problems.is_empty());
        let a1 = Pod::new();
        let (code, message) =
            Runtime::new(&node, &a1, "red", "a1", "1aaaaaaaaaaa").run("STATUS", &Value::Null).unwrap_err();
        assert!(
            code == 51 && (message.contains("Node/node-1") || message.contains("192.168.77.11")),
            "{code}: {message}"
        );
        assert!(!conf.exists() && !bin.exists());
        lonely_underlay();
        let agent = agent.ready();
        let list = conf.join("05-juneau.conflist");
        until("the configuration is there", || list.exists().then_some(())).unwrap();
        let list: Value = serde_json::from_slice(&std::fs::read(list).unwrap()).unwrap();
        assert_eq!((&list["cniVersion"], &list["plugins"][0]["type"]), (&json!("1.1.0"), &json!("juneau")));
        assert_eq!(list["plugins"][0]["socket"], json!(node.socket()));
        assert_eq!(std::fs::read(bin.join("juneau")).unwrap(), std::fs::read(plugin()).unwrap());
        // Taken away, it comes back.
        std::fs::remove_file(bin.join("juneau")).unwrap();
        until("the plugin is back", || bin.join("juneau").exists().then_some(())).unwrap();
        // Where it cannot be written it is a problem, and Pods are attached all the same.
        std::fs::remove_dir_all(&bin).unwrap();
        std::fs::write(&bin, "").unwrap();
        let status = agent
            .wait("a problem", |status| status.problems.iter().any(|problem| problem.message.contains("CNI plugin")));
        assert!(status.ready);
        Runtime::new(&node, &a1, "red", "a1", "1aaaaaaaaaaa").added();
    });
}

#[test]
fn a_plugin_of_another_release_is_told_so() {
    in_node(|| {
        lonely_underlay();
        let node = Node::new("node-1");
        let _agent = node.start().ready();
        use std::io::{Read, Write};
        let mut stream = std::os::unix::net::UnixStream::connect(node.socket()).unwrap();
        stream.write_all(b"{\"version\":9,\"method\":\"attach\",\"parameters\":[]}\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("{\"version\":1,\"error\":{\"code\":\"unsupported-version\""), "{answer}");
        assert!(node.ask::<juneau_agent::protocol::Readiness>(&Method::Readiness).unwrap().ready);
    });
}

#[test]
fn it_is_small_and_starts_at_once() {
    let size = plugin().metadata().unwrap().len();
    assert!(size <= 1_400_000, "{size} bytes");
    assert!(is_static(plugin()), "it needs no library of the node");
    let mut times: Vec<Duration> = (0..21)
        .map(|_| {
            let start = Instant::now();
            let status =
                std::process::Command::new(plugin()).arg("--version").stdout(std::process::Stdio::null()).status();
            assert!(status.unwrap().success());
            start.elapsed()
        })
        .collect();
    times.sort();
    assert!(times[10] <= Duration::from_millis(5), "{times:?}");
}

/// No program header asks for an interpreter (`PT_INTERP`, 3).
fn is_static(path: &Path) -> bool {
    let bytes = std::fs::read(path).unwrap();
    let word = |at: usize| u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap());
    let offset = usize::try_from(u64::from_le_bytes(bytes[32..40].try_into().unwrap())).unwrap();
    let (size, count) = (usize::from(word(54)), usize::from(word(56)));
    (0..count).all(|i| u32::from_le_bytes(bytes[offset + i * size..][..4].try_into().unwrap()) != 3)
}
