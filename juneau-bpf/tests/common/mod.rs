//! Tests of the kernel's half run in a network namespace and a bpffs of their own.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

pub mod node;

use std::io::Write;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use juneau_bpf::{Mechanism, NodeConfig, Options};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// The address of the node under test.
pub const VTEP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// Tests that could not run.
static SKIPPED: AtomicU32 = AtomicU32::new(0);

/// Links and loads are few at a time: the kernel waits for the same grace periods anyway.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A network namespace and a bpffs, as long as the closure runs.
#[derive(Clone)]
pub struct Sandbox {
    /// Where the bpffs is mounted.
    pub bpffs: PathBuf,
}

/// Runs `test` on a thread in namespaces of its own. Without the rights for that it says so, loudly, and counts.
pub fn sandbox(test: impl FnOnce(Sandbox) + Send) {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let outcome = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if let Err(error) = unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET) {
                let count = SKIPPED.fetch_add(1, Ordering::Relaxed) + 1;
                // Past the test harness, which would keep it to itself.
                let _ = writeln!(std::io::stderr(), "SKIPPED {count}: needs root and namespaces ({error})");
                return;
            }
            let none: Option<&str> = None;
            mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
            let bpffs = PathBuf::from("/sys/fs/bpf");
            mount(Some("bpf"), &bpffs, Some("bpf"), MsFlags::empty(), none).unwrap();
            ip("link set lo up");
            test(Sandbox { bpffs });
        });
        thread.join()
    });
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

impl Sandbox {
    /// The conventional pin root.
    pub fn root(&self) -> PathBuf {
        self.bpffs.join("juneau")
    }

    /// Options for small maps.
    pub fn options(&self) -> Options {
        let node = NodeConfig { vtep: VTEP, underlay_ifindex: 1, vxlan_ifindex: 1, vxlan_port: 4789 };
        let mut options = Options::new(self.root(), node);
        // Small maps are made and freed faster.
        let sizes = &mut options.sizes;
        sizes.flows = Some(4096);
        sizes.endpoints = Some(1024);
        for size in [
            &mut sizes.interfaces_high,
            &mut sizes.macs,
            &mut sizes.segments,
            &mut sizes.routes,
            &mut sizes.vteps,
            &mut sizes.policies,
            &mut sizes.fragments,
            &mut sizes.path_mtus,
        ] {
            *size = Some(256);
        }
        options
    }

    /// Makes a veth pair and returns the ifindex of the first end.
    pub fn veth(&self, name: &str) -> u32 {
        ip(&format!("link add {name} type veth peer name {name}-p"));
        ip(&format!("link set {name} up"));
        ip(&format!("link set {name}-p up"));
        ifindex(name)
    }

    /// Names below a directory of pins.
    pub fn pins(&self, directory: &str) -> Vec<String> {
        names(&self.root().join(directory))
    }
}

/// How programs are attached when the choice is left to the kernel: TCX is there from 6.6 on.
pub fn usual_mechanism() -> Mechanism {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap(), numbers.next().unwrap());
    if version >= (6, 6) { Mechanism::Tcx } else { Mechanism::Clsact }
}

/// The ifindex of a device of this namespace.
pub fn ifindex(name: &str) -> u32 {
    nix::net::if_::if_nametoindex(name).unwrap()
}

/// Runs `ip` with arguments that have no blanks in them.
pub fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

fn names(directory: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
