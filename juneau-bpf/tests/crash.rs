//! A process that dies before any of its writes to the kernel: what runs goes on, and the next start makes it whole.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::node::{program, tables};
use common::{Sandbox, sandbox};
use juneau_bpf::failpoint::{Failpoints, Write};
use juneau_bpf::{AttachMode, Dataplane, Options, Result};

/// Options whose `number`th write fails, and all after it: the process is gone. The flag tells whether it came to that.
fn dies_at(sandbox: &Sandbox, number: u64) -> (Options, Arc<AtomicBool>) {
    let died = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&died);
    let mut options = sandbox.options();
    options.failpoints = Failpoints::new(move |write: &Write<'_>| {
        if write.number < number {
            return Ok(());
        }
        flag.store(true, Ordering::Relaxed);
        Err(io::Error::from_raw_os_error(libc::EINTR))
    });
    (options, died)
}

/// What an agent does at its start.
fn start(options: Options, ifindexes: [u32; 2]) -> Result<Dataplane> {
    let dataplane = Dataplane::open(options)?;
    dataplane.adopt_links()?;
    for (name, ifindex) in ["pod0", "pod1"].into_iter().zip(ifindexes) {
        dataplane.attach_pod(name, ifindex)?;
    }
    dataplane.retire_old_generations()?;
    Ok(dataplane)
}

fn assert_whole(sandbox: &Sandbox, dataplane: &Dataplane) {
    let links = dataplane.links().unwrap();
    assert_eq!(links.len(), 2, "{links:?}");
    assert!(links.iter().all(|link| link.is_live() && link.load == Some(dataplane.load())), "{links:?}");
    let generations: Vec<_> = sandbox.pins("abi-3").into_iter().filter(|name| name.starts_with("gen-")).collect();
    assert_eq!(generations, [format!("gen-{}", dataplane.load().generation)]);
}

/// Lets a start die at every write in turn, from `first` on. Returns how many writes there are.
fn every_crash(sandbox: &Sandbox, ifindexes: [u32; 2], mode: AttachMode, first: u64, between: impl Fn()) -> u64 {
    for number in first.. {
        between();
        let (mut options, died) = dies_at(sandbox, number);
        options.attach = mode;
        let outcome = start(options, ifindexes);
        if !died.load(Ordering::Relaxed) {
            assert_whole(sandbox, &outcome.unwrap());
            return number - 1;
        }
        assert!(outcome.is_err(), "write {number}");
        drop(outcome);
        let mut options = sandbox.options();
        options.attach = mode;
        let again = start(options, ifindexes).unwrap_or_else(|error| panic!("after a crash at {number}: {error}"));
        assert_whole(sandbox, &again);
    }
    unreachable!("a start has an end")
}

fn writes_of_a_load(sandbox: &Sandbox) -> u64 {
    let count = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&count);
    let mut options = sandbox.options();
    options.failpoints = Failpoints::new(move |write: &Write<'_>| {
        counter.store(write.number, Ordering::Relaxed);
        Ok(())
    });
    drop(Dataplane::open(options).unwrap());
    count.load(Ordering::Relaxed)
}

#[test]
fn of_a_first_start() {
    sandbox(|sandbox| {
        let ifindexes = [sandbox.veth("pod0"), sandbox.veth("pod1")];
        let writes = every_crash(&sandbox, ifindexes, AttachMode::Best, 1, || {
            if sandbox.root().exists() {
                std::fs::remove_dir_all(sandbox.root()).unwrap();
            }
        });
        assert!(writes > 30, "{writes} writes");
    });
}

#[test]
fn of_an_upgrade() {
    sandbox(|sandbox| {
        let ifindexes = [sandbox.veth("pod0"), sandbox.veth("pod1")];
        let first = start(sandbox.options(), ifindexes).unwrap();
        program(&first, &tables(ifindexes));
        let maps = |dataplane: &Dataplane| {
            ["jn_flows", "jn_endpoints", "jn_hot", "jn_generations"].map(|name| dataplane.map_id(name).unwrap())
        };
        let before = maps(&first);
        drop(first);
        let writes = every_crash(&sandbox, ifindexes, AttachMode::Best, 1, || ());
        assert!(writes > 20, "{writes} writes");
        let last = start(sandbox.options(), ifindexes).unwrap();
        assert_eq!(maps(&last), before);
        let held = juneau_core::tables::TablesMut::snapshot(&last.tables().unwrap()).unwrap();
        assert_eq!(held, tables(ifindexes));
    });
}

#[test]
fn of_an_upgrade_with_clsact() {
    sandbox(|sandbox| {
        let ifindexes = [sandbox.veth("pod0"), sandbox.veth("pod1")];
        let mut options = sandbox.options();
        options.attach = AttachMode::Clsact;
        drop(start(options, ifindexes).unwrap());
        // Loading and pinning is the same as with TCX.
        let loading = writes_of_a_load(&sandbox);
        let writes = every_crash(&sandbox, ifindexes, AttachMode::Clsact, loading, || ());
        assert!(writes > loading + 4, "{writes} writes");
    });
}
