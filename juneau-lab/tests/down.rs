//! `down` leaves nothing. Alone in its file, since it compares the machine before and after.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::machine::machine;
use common::{Lab, eventually};
use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

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
    let before = machine("juneau-lab-test-down");
    let lab = Lab::two_tenants("down");
    lab.expect_green();
    assert_ne!(machine("juneau-lab-test-down"), before, "a running lab shows somewhere");
    let agents = ["node-1", "node-2"].map(|node| lab.pid(&format!("/nodes/{node}/agent/pid")));
    let objects: BTreeSet<_> = agents.into_iter().flat_map(bpf_objects).collect();
    assert!(objects.iter().any(|(kind, id)| *kind == "prog" && exists(kind, id)), "agents hold programs: {objects:?}");
    // Somebody's shell inside a node, which nothing recorded.
    let mut shell = lab.command(&["exec", "node-1", "--", "sleep", "1000"]).spawn().unwrap();

    lab.expect(&["down"]);

    shell.wait().unwrap();
    let after = machine("juneau-lab-test-down");
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
