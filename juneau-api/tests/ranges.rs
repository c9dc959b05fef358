//! A tenant's prefixes are its own affair: those that the cluster, its nodes or its underlay use are as good as any
//! other. Only addresses that no packet may have are refused, by name.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Files, example, node};
use juneau_core::layout::{EndpointKey, RouteKey, be32};
use std::net::Ipv4Addr;

const RED: u32 = 2;
const BLUE: u32 = 3;

/// The example in which red's first Subnet has another prefix, `base` and a length, with its Pods at .10 and .20.
fn moved(base: [u8; 3], length: u8) -> Files {
    let mut files = example();
    let red = files.get_mut("red.yaml").unwrap();
    let [a, b, c] = base;
    for host in [0, 10, 20] {
        let from = format!("10.0.1.{host}/24");
        assert!(red.contains(&from), "{from}");
        *red = red.replace(&from, &format!("{a}.{b}.{c}.{host}/{length}"));
    }
    *red = red.replace("10.0.1.", &format!("{a}.{b}.{c}."));
    files
}

#[test]
fn a_tenant_may_have_any_range_that_we_use() {
    let mut node = node(1);
    // The node's own address is one of the tenant's Pods' as well.
    let ours = Ipv4Addr::new(192, 168, 77, 10);
    node.context.vtep = ours;
    let with_ours = |mut files: Files| {
        for text in files.values_mut() {
            *text = text.replace("192.168.77.11", "192.168.77.10");
        }
        files
    };
    let before = node.run(&with_ours(example()));
    assert_eq!(before.texts(), [""; 0]);
    // Shared address space, Services, Pods of the default network, the underlay.
    for (base, length) in [([100, 64, 0], 16), ([10, 96, 0], 16), ([10, 244, 0], 16), ([192, 168, 77], 24)] {
        let run = node.run(&with_ours(moved(base, length)));
        assert_eq!(run.texts(), [""; 0], "{base:?}");
        let [a, b, c] = base;
        let (first, prefix) = (Ipv4Addr::new(a, b, c, 10), Ipv4Addr::new(a, b, c, 0));
        let record = run.tables.endpoints[&EndpointKey { vpc: RED, address: be32(first) }];
        assert_eq!(run.tables.interfaces[&record.ifindex].address, be32(first));
        assert!(run.tables.routes.contains_key(&RouteKey::new(20, prefix, length)), "{base:?}");
        assert_eq!(run.of(BLUE), before.of(BLUE), "{base:?}");
        assert_eq!((&run.tables.vteps, run.tables.endpoints.len()), (&before.tables.vteps, 8), "{base:?}");
    }
}

#[test]
fn what_no_packet_may_have_is_refused_by_name() {
    for (base, length) in [
        ([0, 1, 0], 16),
        ([127, 0, 0], 16),
        ([127, 9, 9], 24),
        ([169, 254, 1], 24),
        ([224, 0, 0], 16),
        ([250, 0, 0], 16),
    ] {
        let run = node(1).run(&moved(base, length));
        let [a, b, c] = base;
        let wanted = format!(
            "Subnet/red-a (red.yaml, document 2): spec.cidr: {a}.{b}.{c}.0/{length} holds addresses that no packet may \
             have; use a prefix outside 0/8, 127/8, 169.254/16 and 224/3"
        );
        assert!(run.texts().contains(&wanted), "{wanted}\n{:#?}", run.texts());
        assert_eq!(run.of(RED).interfaces.len(), 1, "the other Subnet's");
    }
}
