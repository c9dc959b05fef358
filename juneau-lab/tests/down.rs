//! `down` leaves nothing. Alone in its file, since it compares the machine before and after.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Lab, eventually};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// What of the machine a lab could touch, as lines.
fn machine() -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for line in [
        "ip -o link show",
        "ip -o address show",
        "ip route show table all",
        "ip rule show",
        "ip neighbour show nud permanent",
        "ip netns list",
        "tc qdisc show",
        "ls -A /run",
        "find /sys/fs/bpf",
        "find /sys/fs/cgroup -maxdepth 3 -type d",
    ] {
        let mut words = line.split(' ');
        let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        all.extend(text.lines().map(|entry| format!("{line}: {}", steady(entry))));
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    all.extend(mounts.lines().map(|entry| format!("mount: {entry}")));
    sysctls(Path::new("/proc/sys/net"), &mut all);
    // Other labs come and go; they are their own tests' business.
    all.retain(|entry| !entry.contains("juneau-lab") || entry.contains("juneau-lab-test-down"));
    all
}

/// Without what counts down.
fn steady(entry: &str) -> String {
    let mut words: Vec<&str> = entry.split_whitespace().collect();
    while let Some(at) = words.iter().position(|word| ["valid_lft", "preferred_lft", "expires"].contains(word)) {
        words.drain(at..(at + 2).min(words.len()));
    }
    words.join(" ")
}

fn sysctls(dir: &Path, all: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            sysctls(&path, all);
        } else if !path.ends_with("nf_conntrack_count") {
            let value = std::fs::read(&path).unwrap_or_default();
            all.insert(format!("sysctl {}: {}", path.display(), String::from_utf8_lossy(&value).trim()));
        }
    }
}

/// Programs, maps and links that a process holds, as `bpftool` names them: `prog 7`.
fn bpf_objects(pid: i32) -> BTreeSet<(&'static str, String)> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap().flatten() {
        for line in std::fs::read_to_string(entry.path()).unwrap_or_default().lines() {
            for (key, kind) in [("prog_id:", "prog"), ("map_id:", "map"), ("link_id:", "link")] {
                if let Some(id) = line.strip_prefix(key) {
                    found.insert((kind, id.trim().to_owned()));
                }
            }
        }
    }
    found
}

fn exists(kind: &str, id: &str) -> bool {
    Command::new("bpftool").args([kind, "show", "id", id]).output().unwrap().status.success()
}

#[test]
fn down_leaves_the_machine_as_it_was() {
    let before = machine();
    let lab = Lab::two_tenants("down");
    lab.expect_green();
    assert_ne!(machine(), before, "a running lab shows somewhere");
    let agents = ["node-1", "node-2"].map(|node| lab.pid(&format!("/nodes/{node}/agent/pid")));
    let objects: BTreeSet<_> = agents.into_iter().flat_map(bpf_objects).collect();
    assert!(objects.iter().any(|(kind, id)| *kind == "prog" && exists(kind, id)), "agents hold programs: {objects:?}");
    // Somebody's shell inside a node, which nothing recorded.
    let mut shell = lab.command(&["exec", "node-1", "--", "sleep", "1000"]).spawn().unwrap();

    lab.expect(&["down"]);

    shell.wait().unwrap();
    let after = machine();
    let differences: Vec<_> = before.symmetric_difference(&after).collect();
    assert!(differences.is_empty(), "{differences:#?}");
    let argument = lab.dir().to_str().unwrap();
    let processes = juneau_lab::process::find_by_arguments(|all| all.iter().any(|one| one.contains(argument)));
    assert!(processes.is_empty(), "{processes:?}");
    // The kernel takes network namespaces down a moment after their last user went.
    eventually("programs, maps and links are gone", Duration::from_secs(10), || {
        !objects.iter().any(|(kind, id)| exists(kind, id))
    });
}
