//! Loads, pins, adoption, upgrades.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{ip, sandbox, usual_mechanism};
use juneau_bpf::{AttachMode, AttachPoint, Dataplane, Error, ForeignProgram, LoadId, Mechanism};

#[test]
fn a_second_load_takes_over_maps_and_links() {
    sandbox(|sandbox| {
        let ifindex = sandbox.veth("pod0.1");
        let first = Dataplane::open(sandbox.options()).unwrap();
        assert_eq!(first.load(), LoadId { abi: 3, generation: 1 });
        first.attach_pod("pod0.1", ifindex).unwrap();
        let flows = first.map_id("jn_flows").unwrap();
        let tails = first.map_id("jn_tails").unwrap();
        let links = first.links().unwrap();
        assert_eq!(links.len(), 1);
        assert_eq!(links[0].point, AttachPoint::Pod("pod0.1".to_owned()));
        assert_eq!((links[0].ifindex, links[0].mechanism), (ifindex, usual_mechanism()));
        assert_eq!(links[0].load, Some(first.load()));
        let seeds = first.seeds();
        drop(first);

        let second = Dataplane::open(sandbox.options()).unwrap();
        assert_eq!(second.load().generation, 2);
        assert_eq!(second.map_id("jn_flows").unwrap(), flows);
        assert_ne!(second.map_id("jn_tails").unwrap(), tails);
        assert_eq!(second.seeds(), seeds);
        // Until links are adopted, the old load runs.
        assert_eq!(second.links().unwrap()[0].load.unwrap().generation, 1);
        assert_eq!(second.retire_old_generations().unwrap(), []);
        let adopted = second.adopt_links().unwrap();
        assert_eq!(adopted.len(), 1);
        assert_eq!(adopted[0].load, Some(second.load()));
        assert_ne!(adopted[0].program, links[0].program);
        assert_eq!(second.retire_old_generations().unwrap(), [LoadId { abi: 3, generation: 1 }]);
        assert!(!sandbox.pins("abi-3").contains(&"gen-1".to_owned()));
        second.remove().unwrap();
        assert!(!sandbox.root().exists());
    });
}

#[test]
fn two_processes_do_not_share_a_directory() {
    sandbox(|sandbox| {
        let _first = Dataplane::open(sandbox.options()).unwrap();
        let error = Dataplane::open(sandbox.options()).unwrap_err();
        assert!(matches!(error, Error::InUse { ref path } if *path == sandbox.root()), "{error}");
    });
}

#[test]
fn a_pinned_map_of_another_size_is_refused_and_nothing_changes() {
    sandbox(|sandbox| {
        std::fs::create_dir_all(sandbox.root().join("abi-7")).unwrap();
        drop(Dataplane::open(sandbox.options()).unwrap());
        let before = sandbox.pins("abi-3");
        let mut options = sandbox.options();
        options.sizes.flows = Some(8192);
        let error = Dataplane::open(options).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::ForeignMap { ref map, .. } if map == "jn_flows"), "{text}");
        assert!(text.contains("4096") && text.contains("8192") && text.contains("abi-3"), "{text}");
        assert_eq!(sandbox.pins("abi-3"), before);
        let again = Dataplane::open(sandbox.options()).unwrap();
        assert_eq!(again.other_abis().unwrap(), [7]);
    });
}

#[test]
fn a_directory_outside_a_bpffs_is_refused() {
    sandbox(|sandbox| {
        let mut options = sandbox.options();
        options.pin_root = std::env::temp_dir().join(format!("juneau-{}", std::process::id()));
        let root = options.pin_root.clone();
        let error = Dataplane::open(options).unwrap_err();
        std::fs::remove_dir(&root).unwrap();
        assert!(matches!(error, Error::NotBpffs { ref path } if *path == root), "{error}");
    });
}

#[test]
fn a_link_of_a_device_that_is_gone_is_swept() {
    sandbox(|sandbox| {
        let ifindex = sandbox.veth("pod0");
        let dataplane = Dataplane::open(sandbox.options()).unwrap();
        dataplane.attach_pod("pod0", ifindex).unwrap();
        ip("link del pod0");
        let links = dataplane.links().unwrap();
        assert!(!links[0].is_live(), "{links:?}");
        // A new device of the same name takes the name over.
        let ifindex = sandbox.veth("pod0");
        dataplane.attach_pod("pod0", ifindex).unwrap();
        assert!(dataplane.links().unwrap()[0].is_live());
        ip("link del pod0");
        assert_eq!(dataplane.adopt_links().unwrap(), []);
        assert_eq!(sandbox.pins("links"), [""; 0]);
    });
}

#[test]
fn clsact_where_there_is_no_tcx() {
    sandbox(|sandbox| {
        let ifindex = sandbox.veth("pod0");
        let mut options = sandbox.options();
        options.attach = AttachMode::Clsact;
        let first = Dataplane::open(options.clone()).unwrap();
        first.attach_pod("pod0", ifindex).unwrap();
        first.attach_pod("pod0", ifindex).unwrap();
        let links = first.links().unwrap();
        assert_eq!(links.len(), 1, "{links:?}");
        assert_eq!((links[0].mechanism, links[0].load), (Mechanism::Clsact, Some(first.load())));
        drop(first);
        let second = Dataplane::open(options).unwrap();
        assert_eq!(second.adopt_links().unwrap()[0].load, Some(second.load()));
        second.retire_old_generations().unwrap();
        drop(second);
        // A kernel that got TCX: the filter goes when the link is there. One without keeps the filter.
        let third = Dataplane::open(sandbox.options()).unwrap();
        third.attach_pod("pod0", ifindex).unwrap();
        let links = third.links().unwrap();
        assert_eq!(links.len(), 1, "{links:?}");
        assert_eq!(links[0].mechanism, usual_mechanism());
        third.detach(&AttachPoint::Pod("pod0".to_owned())).unwrap();
        assert_eq!(third.links().unwrap(), []);
        assert_eq!(sandbox.pins("links"), [""; 0]);
    });
}

#[test]
fn a_program_of_somebody_else_ahead_of_ours_is_named() {
    sandbox(|sandbox| {
        let ifindex = sandbox.veth("pod0");
        let dataplane = Dataplane::open(sandbox.options()).unwrap();
        let point = AttachPoint::Pod("pod0".to_owned());
        assert_eq!(dataplane.foreign_programs_ahead(&point).unwrap(), []);
        dataplane.attach_pod("pod0", ifindex).unwrap();
        assert_eq!(dataplane.foreign_programs_ahead(&point).unwrap(), []);
        // Another node's agent is as foreign as anybody: it puts itself first, as ours did.
        let mut options = sandbox.options();
        options.pin_root = sandbox.bpffs.join("other");
        let other = Dataplane::open(options).unwrap();
        other.attach_pod("pod0", ifindex).unwrap();
        if usual_mechanism() == Mechanism::Clsact {
            // Filters have no order between agents: the later one takes the place, and ours is seen to be gone.
            let links = dataplane.links().unwrap();
            assert_eq!((links[0].program, links[0].load), (other.links().unwrap()[0].program, None));
            assert_eq!(dataplane.foreign_programs_ahead(&point).unwrap(), []);
            return;
        }
        let ahead = dataplane.foreign_programs_ahead(&point).unwrap();
        let id = other.links().unwrap()[0].program;
        assert_eq!(named(&ahead), [(id, "jn_pod")]);
        assert_eq!(other.foreign_programs_ahead(&point).unwrap(), [], "the one behind is no trouble");
        other.remove().unwrap();
        assert_eq!(dataplane.foreign_programs_ahead(&point).unwrap(), []);
    });
}

#[test]
fn a_filter_of_somebody_else_ahead_of_ours_is_named() {
    sandbox(|sandbox| {
        let ifindex = sandbox.veth("pod0");
        let mut options = sandbox.options();
        options.attach = AttachMode::Clsact;
        let dataplane = Dataplane::open(options).unwrap();
        let point = AttachPoint::Pod("pod0".to_owned());
        let foreign = dataplane.pin_path("jn_empty");
        let filter = |priority| {
            let pin = foreign.display();
            tc(&format!("filter add dev pod0 ingress priority {priority} handle 1 bpf da object-pinned {pin}"));
        };
        dataplane.attach_pod("pod0", ifindex).unwrap();
        filter(2);
        assert_eq!(dataplane.foreign_programs_ahead(&point).unwrap(), [], "the one behind is no trouble");
        // Of equal priority, the last one comes first.
        filter(1);
        assert_eq!(dataplane.links().unwrap()[0].load, Some(dataplane.load()));
        let ahead = dataplane.foreign_programs_ahead(&point).unwrap();
        assert_eq!(ahead.len(), 1, "{ahead:?}");
        assert_eq!(ahead[0].name, "jn_empty");
        tc("filter del dev pod0 ingress priority 1 handle 1 bpf");
        assert_eq!(dataplane.foreign_programs_ahead(&point).unwrap(), []);
    });
}

fn named(programs: &[ForeignProgram]) -> Vec<(u32, &str)> {
    programs.iter().map(|program| (program.id, program.name.as_str())).collect()
}

fn tc(arguments: &str) {
    let output = std::process::Command::new("tc").args(arguments.split(' ')).output().unwrap();
    assert!(output.status.success(), "tc {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn maps_dump_with_the_names_of_their_fields() {
    sandbox(|sandbox| {
        let dataplane = Dataplane::open(sandbox.options()).unwrap();
        common::node::program(&dataplane, &common::node::tables([7, 8]));
        let dump = |map: &str| {
            let id = dataplane.map_id(map).unwrap().to_string();
            let output = std::process::Command::new("bpftool").args(["map", "dump", "id", &id]).output().unwrap();
            assert!(output.status.success(), "{map}: {}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap()
        };
        let endpoints = dump("jn_endpoints");
        for field in ["vpc", "address", "flags", "ifindex", "gateway_mac", "identity", "zero2"] {
            assert!(endpoints.contains(&format!("\"{field}\": ")), "{field} in {endpoints}");
        }
        for (map, field) in [("jn_policies", "direction"), ("jn_vpcs", "flow_limit"), ("jn_macs", "vni")] {
            let text = dump(map);
            assert!(text.contains(&format!("\"{field}\": ")), "{field} in {text}");
        }
    });
}
