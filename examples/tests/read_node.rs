//! Reading a live node's tables, in a network namespace and a bpffs of the test's own. Needs root.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use juneau_bpf::{Dataplane, NodeConfig, Options};
use juneau_core::layout::{ROUTE_CONNECTED, Route, RouteKey};
use juneau_core::tables::{Change, TablesMut};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

#[test]
fn read_node() {
    let thread = std::thread::spawn(|| {
        if let Err(error) = unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET) {
            // Past the test harness, which would keep it to itself.
            writeln!(std::io::stderr(), "SKIPPED 1: needs root and namespaces ({error})").unwrap();
            return;
        }
        let none: Option<&str> = None;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
        mount(Some("bpf"), "/sys/fs/bpf", Some("bpf"), MsFlags::empty(), none).unwrap();
        tables_are_read();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

fn tables_are_read() {
    let root = Path::new("/sys/fs/bpf/juneau");
    let node =
        NodeConfig { vtep: Ipv4Addr::new(192, 0, 2, 1), underlay_ifindex: 1, vxlan_ifindex: 1, vxlan_port: 4789 };
    let mut options = Options::new(root.to_owned(), node);
    options.sizes.routes = Some(256);
    let dataplane = Dataplane::open(options).unwrap();
    let key = RouteKey::new(7, Ipv4Addr::new(10, 0, 1, 0), 24);
    let route = Route { kind: ROUTE_CONNECTED, vni: 100, ..Route::default() };
    dataplane.tables().unwrap().apply(&Change::Route(key, Some(route))).unwrap();

    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_read-node")).arg(root).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let all = run(&[]);
    assert!(all.contains("jn_routes: 1 of 256"), "{all}");
    assert!(all.ends_with("table 7 10.0.1.0/24 is in VNI 100\n"), "{all}");
    assert_eq!(run(&["7", "10.0.1.9"]), "10.0.1.9 is in VNI 100\n");
    assert_eq!(run(&["8", "10.0.1.9"]), "10.0.1.9 has no route in table 8\n");
    let nothing = Command::new(env!("CARGO_BIN_EXE_read-node")).arg("/sys/fs/bpf/absent").output().unwrap();
    assert!(!nothing.status.success());
}
