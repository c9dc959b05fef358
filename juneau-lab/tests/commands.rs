//! What the commands do, one by one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Lab, eventually, pod, text};
use std::process::Stdio;
use std::time::Duration;

#[test]
fn without_a_lab_every_command_says_how_to_get_one() {
    let lab = Lab::new("none");
    for arguments in [
        &["status"][..],
        &["check"],
        &["get"],
        &["logs"],
        &["exec", "node-1", "--", "true"],
        &["capture", "node-1"],
        &["add-node", "node-3"],
        &["apply", "-f", "/dev/null"],
    ] {
        let output = lab.run(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(text(&output).contains("juneau-lab up"), "{arguments:?}: {}", text(&output));
    }
    lab.expect(&["down"]);
}

#[test]
fn exec_enters_nodes_and_pods_and_gives_the_commands_status() {
    let lab = Lab::two_tenants("exec");
    assert_eq!(lab.exec("red/a1", "true").status.code(), Some(0));
    assert_eq!(lab.run(&["exec", "red/a1", "--", "sh", "-c", "exit 7"]).status.code(), Some(7));
    let addresses = text(&lab.exec("red/a1", "ip -br address show eth0"));
    assert!(addresses.contains("10.0.1.10/24"), "{addresses}");
    let node = text(&lab.exec("node-1", "ip -br address show eth0"));
    assert!(node.contains("192.168.77."), "{node}");
    let group = text(&lab.exec("node-1", "cat /proc/self/cgroup"));
    assert!(group.lines().any(|line| line == "0::/"), "a node is the root of its cgroup namespace: {group}");
    let mounted = text(&lab.exec("node-1", "stat -f -c %T /sys/fs/bpf /sys/fs/cgroup"));
    assert_eq!(mounted.split_whitespace().collect::<Vec<_>>(), ["bpf_fs", "cgroup2fs"]);
    let unknown = lab.exec("red/nobody", "true");
    assert_eq!(unknown.status.code(), Some(1));
    assert!(text(&unknown).contains("red/a1"), "what exists is named: {}", text(&unknown));
}

#[test]
fn get_shows_what_apply_wrote_and_delete_removes_it() {
    let lab = Lab::two_tenants("get");
    let manifests = pod("red", "c1", "node-1", "red-a", "10.0.1.77", "u-c1");
    let applied = lab.apply(&manifests);
    assert!(applied.contains("Pod/red/c1 created"), "{applied}");
    assert!(lab.apply(&manifests).contains("Pod/red/c1 unchanged"));
    assert!(lab.expect(&["get", "pods"]).contains("red/c1"));
    let yaml = lab.expect(&["get", "pod", "red/c1", "-o", "yaml"]);
    assert!(yaml.contains("nodeName: node-1"), "{yaml}");
    let json: serde_json::Value = serde_json::from_str(&lab.expect(&["get", "po", "-o", "json"])).unwrap();
    assert!(json.as_array().unwrap().iter().any(|pod| pod["metadata"]["name"] == "c1"));
    assert!(lab.delete(&manifests).contains("Pod/red/c1 deleted"));
    let gone = lab.run(&["get", "pod", "red/c1"]);
    assert!(!gone.status.success());
    let unknown = lab.run(&["get", "configmaps"]);
    assert!(text(&unknown).contains("NetworkEndpoint"), "known kinds are named: {}", text(&unknown));
}

#[test]
fn a_broken_manifest_is_refused_before_it_is_written() {
    let lab = Lab::two_tenants("broken");
    let file = lab.dir().join("broken.txt");
    std::fs::write(&file, "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {nodeNam: y}\n").unwrap();
    let output = lab.run(&["apply", "-f", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("nodeNam"), "{}", text(&output));
    assert!(!lab.expect(&["get", "pods"]).contains("default/x"));
}

#[test]
fn an_added_node_carries_pods() {
    let lab = Lab::two_tenants("node");
    let told = lab.expect(&["add-node", "node-3"]);
    assert!(told.contains("192.168.77.13"), "{told}");
    assert!(!lab.run(&["add-node", "node-3"]).status.success(), "twice");
    lab.apply(&pod("red", "c1", "node-3", "red-b", "10.0.2.77", "u-c1"));
    assert!(lab.exec("red/a1", "ping -c 1 -W 2 10.0.2.77").status.success(), "{}", lab.logs());
    lab.expect_green();
}

#[test]
fn logs_are_shown_by_name() {
    let lab = Lab::two_tenants("logs");
    assert!(lab.expect(&["logs", "supervisor"]).contains("Pod red/a1 is attached"));
    assert!(!lab.run(&["logs", "nobody"]).status.success());
    let mut follow = lab.command(&["logs", "--follow", "supervisor"]);
    let mut child = follow.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    lab.apply(&pod("red", "c1", "node-1", "red-a", "10.0.1.77", "u-c1"));
    assert!(lines.any(|line| line.unwrap().contains("Pod red/c1 is attached")));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn captures_in_a_pod_and_on_the_underlay_decode_with_good_checksums() {
    let lab = Lab::two_tenants("capture");
    let capture = |target: &str, filter: &[&str]| {
        let mut arguments = vec!["capture", target, "--", "-v", "-c", "10"];
        arguments.extend(filter);
        lab.command(&arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
    };
    let pod = capture("red/b2", &["icmp"]);
    let underlay = capture("node-1", &["udp", "port", "4789"]);
    let mut ping = lab.command(&["exec", "red/a1", "--", "ping", "-q", "-i", "0.1", "-c", "40", "10.0.2.20"]);
    let mut ping = ping.stdout(Stdio::null()).spawn().unwrap();
    let (pod, underlay) = (pod.wait_with_output().unwrap(), underlay.wait_with_output().unwrap());
    ping.kill().unwrap();
    ping.wait().unwrap();
    let (pod, underlay) = (text(&pod), text(&underlay));
    assert!(pod.contains("10.0.1.10 > 10.0.2.20: ICMP echo request"), "{pod}");
    assert!(underlay.contains("VXLAN") && underlay.contains("10.0.1.10 > 10.0.2.20"), "{underlay}");
    // What tcpdump says of a checksum that is not good.
    for word in ["bad cksum", "wrong icmp cksum", "bad udp cksum"] {
        assert!(!pod.contains(word) && !underlay.contains(word), "{word}: {pod}{underlay}");
    }
}

#[test]
fn a_second_command_that_makes_or_removes_is_refused() {
    let lab = Lab::two_tenants("lock");
    let path = format!("{}.lock", lab.dir().display());
    let file = std::fs::File::options().create(true).append(true).open(path).unwrap();
    let lock = nix::fcntl::Flock::lock(file, nix::fcntl::FlockArg::LockExclusiveNonblock).unwrap();
    let output = lab.run(&["down"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("another juneau-lab command"), "{}", text(&output));
    drop(lock);
    eventually("the lab is still there", Duration::from_secs(1), || lab.run(&["status"]).status.success());
}

#[test]
fn a_broken_file_is_named_with_its_remedy_and_its_last_good_objects_stay() {
    let lab = Lab::two_tenants("problem");
    let file = lab.manifest("red.yaml");
    let good = std::fs::read_to_string(&file).unwrap();
    assert!(lab.run(&["status"]).status.success());
    // Whole, as editors do it: a reader between a truncation and a write would find an empty file.
    let replace = |text: &str| {
        let temporary = lab.manifest(".red.yaml.new");
        std::fs::write(&temporary, text).unwrap();
        std::fs::rename(temporary, &file).unwrap();
    };
    replace(&format!("{good}\n---\nkind: [Vpc\n"));
    let limit = Duration::from_secs(5);
    eventually("status tells", limit, || lab.run(&["status"]).status.code() == Some(1));
    let told = lab.status();
    let problems = told["problems"].as_object().unwrap();
    let (problem, nodes) = problems.iter().find(|(text, _)| text.contains("red.yaml")).unwrap();
    assert!(problem.contains("last good"), "{problem}");
    assert_eq!(nodes.as_array().unwrap().len(), 2, "both agents say so: {told:#}");
    assert!(text(&lab.run(&["status"])).contains("problem (node-1, node-2): "));
    lab.expect_green();
    replace(&good);
    eventually("status is content", limit, || lab.run(&["status"]).status.success());
}
