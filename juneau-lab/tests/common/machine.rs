//! The machine before and after.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// What of the machine the lab whose directory has this name could touch, as lines.
pub fn machine(lab: &str) -> BTreeSet<String> {
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
    let home = std::env::var("HOME").unwrap_or_default();
    let kubectl = Path::new(&home).join(".kube");
    all.extend(std::fs::read_dir(kubectl).into_iter().flatten().flatten().map(|entry| format!("kubectl: {entry:?}")));
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    all.extend(mounts.lines().map(|entry| format!("mount: {entry}")));
    sysctls(Path::new("/proc/sys/net"), &mut all);
    // Other labs, clusters and nodes of tests come and go; they are their own tests' business.
    let others = ["juneau-lab", "juneau-cluster", "juneau-node-"];
    all.retain(|entry| entry.contains(lab) || !others.iter().any(|other| entry.contains(other)));
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
