//! Taking a node over from another network, and giving it back.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use support::agent::{Node, container_id};
use support::cni::plugin;
use support::{Pod, in_node, lonely_underlay, run};

const FOREIGN_LIST: &str = r#"{"cniVersion":"1.0.0","name":"other","plugins":[{"type":"other"}]}"#;

/// Another network's things on this node: a Pod that the node speaks to, a configuration, a plugin.
struct Other {
    pod: Pod,
    directory: PathBuf,
}

impl Other {
    fn new(node: &Node) -> Self {
        let directory = node.directory.path().join("cni");
        let this = Self { pod: Pod::new(), directory };
        for (name, text) in
            [("net.d/10-other.conflist", FOREIGN_LIST), ("bin/other", "#!/bin/true"), ("bin/loopback", "")]
        {
            let path = this.directory.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        run("ip link add other0 type veth peer name other1 && ip addr add 172.30.0.1/30 dev other0");
        // An alias much like ours.
        run("ip link set other0 up alias 'other 0123 red/a1'");
        run(&format!("ip link set other1 netns {}", this.pod.netns.display()));
        this.pod.sh("ip link set other1 up && ip addr add 172.30.0.2/30 dev other1");
        this
    }

    fn speaks(&self) -> bool {
        self.pod.succeeds("ping -c 2 -i 0.1 -W 2 172.30.0.1")
    }

    fn files(&self) -> String {
        run(&format!("cd {} && find . -type f -exec sha256sum {{}} + | sort -k 2", self.directory.display()))
    }
}

/// Everything of the node that we could have changed.
fn state(node: &Node, other: &Other) -> String {
    let cgroup = node.directory.path().file_name().unwrap().to_str().unwrap();
    let cgroup = juneau_agent::cgroup::root().unwrap().join(cgroup);
    let lines = [
        // Numbers of devices that went are not given again.
        "ip -o -d link show | sed 's/^[0-9]*: //' | sort",
        "ip -4 -o addr show | sed 's/^[0-9]*: //' | sort",
        "ip -4 route show table all",
        "ip rule show",
        "ip neigh show nud all | grep managed | cut -d ' ' -f 1-3",
        "find /sys/fs/bpf",
        &format!("bpftool cgroup show {}", cgroup.display()),
    ];
    lines.map(|line| format!("{line}\n{}", run(&format!("{line} || true")))).join("") + &other.files()
}

fn uninstall(node: &Node, arguments: &[&str]) -> Output {
    let path = node.directory.path();
    let mut command = Command::new(env!("CARGO_BIN_EXE_juneau-agent"));
    command.arg("uninstall").arg("--state-dir").arg(path);
    command.arg("--socket").arg(node.socket()).arg("--metrics-socket").arg(path.join("metrics.sock"));
    command.arg("--cni-bin-dir").arg(path.join("cni/bin")).arg("--cni-conf-dir").arg(path.join("cni/net.d"));
    command.args(arguments).output().unwrap()
}

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Names of what came of things, as `outcome kind name`.
fn items(output: &Output) -> Vec<String> {
    let report = report(output);
    let text = |item: &Value, member: &str| item[member].as_str().unwrap().to_owned();
    let items = report["items"].as_array().unwrap().iter();
    items.map(|item| ["outcome", "kind", "name"].map(|member| text(item, member)).join(" ")).collect()
}

#[test]
fn a_node_is_taken_over_and_given_back() {
    in_node(|| {
        lonely_underlay();
        let node = Node::new("node-1");
        let other = Other::new(&node);
        let path = node.directory.path().display().to_string();
        let list = format!("{path}/cni/net.d/05-juneau.conflist");
        let before = state(&node, &other);

        // Beside another network: its Pods go on, and new Pods are ours.
        let cni = [format!("--cni-bin-dir={path}/cni/bin"), format!("--cni-conf-dir={path}/cni/net.d")];
        let installed = format!("--cni-plugin={}", plugin().display());
        let agent = node.start_with(&[&cni[0], &cni[1], &installed]).ready();
        let [a1, b1] = [Pod::new(), Pod::new()];
        agent.attach(&a1, "red", "a1");
        agent.attach(&b1, "red", "b1");
        support::agent::until("the configuration", || Path::new(&list).exists().then_some(())).unwrap();
        let first = run(&format!("ls {path}/cni/net.d | sort | head -n 1"));
        assert_eq!(first.trim(), "05-juneau.conflist", "runtimes take the first");
        assert!(a1.succeeds("ping -c 1 -W 2 10.0.2.10") && other.speaks());
        let running = state(&node, &other);
        let programs = ["jn_pod", "jn_overlay", "jn_vxlan", "jn_cgroup"].map(|name| {
            let shown = run(&format!("bpftool prog show pinned /sys/fs/bpf/juneau/abi-3/gen-1/{name}"));
            shown.split_once(':').unwrap().0.to_owned()
        });
        let run_still = || {
            let known = |id: &&String| a1.succeeds(&format!("bpftool prog show id {id}"));
            programs.iter().filter(known).cloned().collect::<Vec<_>>()
        };
        assert_eq!(run_still(), programs);
        for kept in ["net.d/10-other.conflist", "bin/other", "bin/loopback"] {
            let line = before.lines().find(|line| line.ends_with(kept)).unwrap();
            assert!(running.contains(line), "{kept}: {running}");
        }

        // While an agent runs nothing is done.
        let refused = uninstall(&node, &["-o", "json"]);
        let why = String::from_utf8(refused.stderr).unwrap();
        assert_eq!((refused.status.code(), refused.stdout.len()), (Some(1), 0), "{why}");
        assert!(why.contains("an agent runs on this node (pid ") && why.contains("delete daemonset"), "{why}");
        assert!(agent.stop());
        assert_eq!(state(&node, &other), running);

        let planned = uninstall(&node, &["--dry-run", "-o", "json"]);
        assert!(planned.status.success(), "{planned:?}");
        assert_eq!(state(&node, &other), running);

        // One that cannot be removed: all else is.
        run(&format!("cd {path}/cni && mount --bind net.d net.d && mount -o remount,ro,bind net.d"));
        let failed = uninstall(&node, &["-o", "json"]);
        assert_eq!(failed.status.code(), Some(1), "{failed:?}");
        run(&format!("umount {path}/cni/net.d"));
        let done = items(&failed);
        assert_eq!(done[0], format!("failed configuration {list}"));
        let names = |a: &str| format!("{}.eth0", a);
        for item in [
            format!("removed plugin {path}/cni/bin/juneau"),
            format!("left Pod interface {} of {}", host(&a1, "red", "a1"), names("red/a1")),
            format!("left Pod interface {} of {}", host(&b1, "red", "b1"), names("red/b1")),
            format!("removed program Pod interface {}", host(&a1, "red", "a1")),
            "removed program underlay device up0".into(),
            "removed program VXLAN device juneau.vxlan".into(),
            "removed program cgroup".into(),
            "removed maps /sys/fs/bpf/juneau/abi-3".into(),
            "removed directory /sys/fs/bpf/juneau".into(),
            "removed device juneau.vxlan".into(),
            "removed neighbour 192.168.77.12 on up0".into(),
            format!("removed lock {path}/agent.lock"),
        ] {
            assert!(done.contains(&item), "{item}: {done:#?}");
        }
        let outcomes = |output: &Output| {
            let all = report(output)["items"].as_array().unwrap().clone();
            all.into_iter().map(|mut item| (item["outcome"].take(), item["name"].take())).collect::<Vec<_>>()
        };
        let expected: Vec<_> = outcomes(&failed)
            .into_iter()
            .map(|(outcome, name)| if name == list.as_str() { ("removed".into(), name) } else { (outcome, name) })
            .collect();
        assert_eq!(outcomes(&planned), expected, "the dry run told what is done");

        // Pods of ours have no network, those of others have.
        assert!(!a1.succeeds("ping -c 1 -W 1 10.0.2.10"));
        assert!(other.speaks());
        // A program that is pinned nowhere and runs nowhere does not exist.
        support::agent::until("the programs are gone", || run_still().is_empty().then_some(())).unwrap();

        // The rest, and a third time the same.
        for _ in 0..2 {
            let again = uninstall(&node, &["-o", "json"]);
            assert!(again.status.success(), "{again:?}");
            let rest = items(&again);
            assert!(rest.iter().filter(|item| item.starts_with("left Pod interface")).count() == 2, "{rest:?}");
        }
        drop((a1, b1));
        support::agent::until("their interfaces go with the Pods", || (state(&node, &other) == before).then_some(()))
            .unwrap_or_else(|| panic!("{}\n\nbefore:\n{before}", state(&node, &other)));
        let text = String::from_utf8(uninstall(&node, &[]).stdout).unwrap();
        assert!(text.starts_with("left          directory") && text.contains("not the agent's"), "{text}");

        // The node can be taken over again.
        let agent = node.start().ready();
        let [a1, b1] = [Pod::new(), Pod::new()];
        agent.attach(&a1, "red", "a1");
        agent.attach(&b1, "red", "b1");
        assert!(a1.succeeds("ping -c 1 -W 2 10.0.2.10"));
    });
}

/// The node's end of a Pod's interface.
fn host(_: &Pod, namespace: &str, name: &str) -> String {
    juneau_agent::pod::host_veth("eth0", &container_id(namespace, name))
}

#[test]
fn what_is_not_ours_stays_and_what_is_half_made_goes() {
    in_node(|| {
        lonely_underlay();
        let node = Node::new("node-1");
        let other = Other::new(&node);
        let cni = other.directory.display();
        // Others' files under our names, others' pins, and a configuration that somebody wrote for our plugin.
        run(&format!("cp {cni}/net.d/10-other.conflist {cni}/net.d/05-juneau.conflist"));
        run(&format!("echo '{{\"plugins\":[{{\"type\":\"juneau\"}}]}}' >{cni}/net.d/90-mine.conflist"));
        run(&format!("echo other >{cni}/bin/juneau"));
        run("mkdir -p /sys/fs/bpf/juneau/abi-3 /sys/fs/bpf/juneau/theirs /sys/fs/bpf/juneau/links");
        run("ip link add juneau.vxlan type veth peer name jv1");
        let state_dir = node.directory.path().join("state");
        std::fs::create_dir(&state_dir).unwrap();
        std::fs::write(state_dir.join("agent.lock"), "1\n").unwrap();
        let before = state(&node, &other);
        // Two of ours that never came to a Pod.
        run("ip link add eth0half group 27246 type veth peer name half1");
        run("ip link add eth0back group 27246 type veth peer name back1");
        run("ip link set eth0back alias 'juneau 0123 red/a1'");
        run(&format!("touch {cni}/bin/.juneau.unfinished"));

        let mut command = Command::new(env!("CARGO_BIN_EXE_juneau-agent"));
        command.args(["uninstall", "-o", "json", "--state-dir"]).arg(&state_dir);
        command.arg("--socket").arg(node.socket()).arg("--metrics-socket").arg(state_dir.join("metrics.sock"));
        command.arg("--cni-bin-dir").arg(other.directory.join("bin"));
        let output = command.arg("--cni-conf-dir").arg(other.directory.join("net.d")).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(
            items(&output),
            [
                format!("left configuration {cni}/net.d/05-juneau.conflist"),
                format!("left configuration {cni}/net.d/90-mine.conflist"),
                format!("left plugin {cni}/bin/juneau"),
                format!("removed file {cni}/bin/.juneau.unfinished"),
                "removed Pod interface eth0half".into(),
                "removed Pod interface eth0back".into(),
                "removed maps /sys/fs/bpf/juneau/abi-3".into(),
                "left pin /sys/fs/bpf/juneau/theirs".into(),
                "left device juneau.vxlan".into(),
                format!("removed lock {}/agent.lock", state_dir.display()),
                format!("removed directory {}", state_dir.display()),
            ]
        );
        let report = report(&output);
        for item in report["items"].as_array().unwrap().iter().filter(|item| item["outcome"] != "removed") {
            assert!(item["why"].is_string() && item["remedy"].is_string(), "{item}");
        }
        assert!(other.speaks());
        let gone = ["/sys/fs/bpf/juneau/abi-3\n", "/sys/fs/bpf/juneau/links\n"];
        let expected = gone.iter().fold(before, |text, line| text.replace(line, ""));
        assert_eq!(state(&node, &other), expected);
    });
}

#[test]
fn the_overlay_has_the_agents_share_in_the_node_and_asks_for_what_there_is() {
    use clap::Parser as _;
    let read = |file: &str| -> Value {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(file);
        serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    };
    let (agent, ours) = (read("base/agent.yaml"), read("overlays/uninstall/uninstall.yaml"));
    let (agent, ours) = (&agent["spec"]["template"]["spec"], &ours["spec"]["template"]["spec"]);
    let list = |value: &Value| value.as_array().unwrap().clone();
    let known = &agent["containers"][0];
    for volume in list(&ours["volumes"]) {
        assert!(list(&agent["volumes"]).contains(&volume), "{volume}");
    }
    for container in [&ours["initContainers"][0], &ours["containers"][0]] {
        assert_eq!(container["securityContext"], known["securityContext"]);
        assert_eq!(container["image"], known["image"]);
        for mount in list(&container["volumeMounts"]) {
            assert!(list(&known["volumeMounts"]).contains(&mount), "{mount}");
        }
        let words = [list(&container["command"]), list(&container["args"])].concat();
        let words = words.iter().map(|word| word.as_str().unwrap());
        juneau_agent::cli::Cli::try_parse_from(words).unwrap();
        // The same places as the agent was told.
        for place in list(&container["args"]) {
            assert!(list(&known["args"]).contains(&place), "{place}");
        }
    }
}
