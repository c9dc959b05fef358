//! What names are, and that they tell things apart.

use super::*;
use proptest::prelude::*;

const NIC: Owner<'static> = Owner::NetworkInterface { namespace: "red", name: "web-0.eth0" };

#[test]
fn usual_names_are_readable_and_without_a_hash() {
    assert_eq!(interface("web-0", "eth0"), "web-0.eth0");
    assert_eq!(node_endpoint("ip-10-0-0-1.internal"), "juneau-node.ip-10-0-0-1.internal");
    assert_eq!(service_nat_attachment("node-1.internal", "red"), "node-1.internal.red");
    assert_eq!(service_nat_endpoint("node-1", "red"), "juneau-nat.node-1.red");
    assert_eq!(endpoint_pool("red", "10.80.255.9/28".parse().unwrap()), "endpoint-ip-red-10-80-255-0-28");
    assert_eq!(main_route_table("red"), "red");
    assert_eq!(subnet_pool("red-a"), "subnet-ip-red-a");
    assert_eq!(
        claim("subnet-ip-red-a", NIC, Attribute::Address),
        "subnet-ip-red-a--networkinterface--red--web-0-eth0--address"
    );
    assert_eq!(claim(VPC_ID_POOL, Owner::Vpc("red"), Attribute::VpcId), "vpc-id--vpc--red--status-vpcid");
    assert_eq!(claim(SUBNET_VNI_POOL, Owner::Subnet("red-a"), Attribute::Vni), "subnet-vni--subnet--red-a--status-vni");
    assert_eq!(
        claim("subnet-ip-default", Owner::Node("node-1"), Attribute::NodeAddress),
        "subnet-ip-default--node--node-1--juneaunode-assignedip"
    );
    assert_eq!(lease("subnet-vni", LeaseValue::Number(2)), "subnet-vni--2");
    let address = LeaseValue::Address([10, 0, 1, 10].into());
    assert_eq!(lease("subnet-ip-red-a", address), "subnet-ip-red-a--10-0-1-10");
    let address = LeaseValue::Address("fd00::1".parse().unwrap());
    assert_eq!(lease("p", address), "p--fd00-0000-0000-0000-0000-0000-0000-0001");
    assert_eq!(label_value("red-a"), "red-a");
    assert_eq!(host_veth("eth0", "0123456789abcdef"), "eth00123456789a");
    assert_eq!(host_veth("eth0", "01"), "eth001");
}

#[test]
fn names_that_fold_together_differ() {
    let claim = |namespace, name| claim("subnet-ip-a", Owner::NetworkInterface { namespace, name }, Attribute::Address);
    let names = [
        claim("red", "a.b.eth0"),
        claim("red", "a-b.eth0"),
        claim("red", "a.b-eth0"),
        claim("red", "a-b-eth0"),
        claim("red--a", "b.eth0"),
        claim("red", "a--b.eth0"),
        super::claim("subnet-ip-a.b", Owner::Vpc("c"), Attribute::VpcId),
        super::claim("subnet-ip-a-b", Owner::Vpc("c"), Attribute::VpcId),
    ];
    for (index, name) in names.iter().enumerate() {
        assert!(is_subdomain(name), "{name}");
        assert!(!names[..index].contains(name), "{name}");
    }
    assert_eq!(names[1], "subnet-ip-a--networkinterface--red--a-b-eth0--address", "the usual one stays readable");
    assert!(names[0].starts_with("subnet-ip-a--networkinterface--red--a-b-eth0--address."), "{}", names[0]);
}

#[test]
fn names_at_the_limit_are_cut_and_differ() {
    let longest = "n".repeat(253);
    assert_eq!(subnet_pool(&"n".repeat(243)).len(), 253, "what fits has no hash");
    assert_eq!(subnet_pool(&"n".repeat(243)), format!("subnet-ip-{}", "n".repeat(243)));
    for name in [
        subnet_pool(&longest),
        interface(&longest, "eth0"),
        node_endpoint(&longest),
        service_nat_attachment(&longest, "red"),
        service_nat_endpoint("node-1", &longest),
        endpoint_pool(&longest, "10.80.255.0/28".parse().unwrap()),
        claim(&longest, Owner::Node(&longest), Attribute::NodeAddress),
        lease(&longest, LeaseValue::Number(u32::MAX)),
        lease(&longest, LeaseValue::Address(std::net::Ipv6Addr::UNSPECIFIED.into())),
    ] {
        assert!(is_subdomain(&name), "{name}");
        assert!(name.len() > 200, "{name}");
    }
    let other = format!("{}m", "n".repeat(252));
    assert_ne!(subnet_pool(&longest), subnet_pool(&other));
    assert_ne!(interface(&longest, "eth0"), interface(&longest, "eth1"));
    for length in [1, 200, 235, 236, 237, 244, 253] {
        for pod in ["n".repeat(length), format!("{}n", &"n-n.".repeat(length)[..length - 1])] {
            for nic in ["e", "eth0", "storage1"] {
                let name = interface(&pod, nic);
                assert!(name.starts_with(&interface_prefix(&pod)), "{name}");
            }
        }
    }
    assert_eq!(label_value(&longest).len(), 63);
    assert_ne!(label_value(&longest), label_value(&other));
    // Whoever names something like a name with a hash gets another name.
    let cut = subnet_pool(&longest);
    let imitation = cut.strip_prefix("subnet-ip-").unwrap();
    assert_ne!(subnet_pool(imitation), cut);
}

#[test]
fn a_hash_is_the_same_in_every_release() {
    assert_eq!(hash("juneau"), "hs5rowvsyxelmh3z");
    assert_eq!(hash(""), "4oymiquy7qobjgx3");
}

#[test]
fn attributes_differ_when_folded() {
    let mut folded: Vec<_> = Attribute::ALL.iter().map(|attribute| fold(attribute.as_str())).collect();
    folded.sort_unstable();
    folded.dedup();
    assert_eq!(folded.len(), Attribute::ALL.len());
    assert!(folded.iter().all(|attribute| is_plain(attribute)));
}

#[test]
fn labels_and_subdomains() {
    for (text, label, subdomain) in [
        ("a", true, true),
        ("a-b", true, true),
        ("a.b", false, true),
        ("a..b", false, false),
        ("", false, false),
        ("-a", false, false),
        ("a-.b", false, false),
        ("A", false, false),
        ("a_b", false, false),
        ("é", false, false),
        (&"a".repeat(63), true, true),
        (&"a".repeat(64), false, true),
        (&"a".repeat(254), false, false),
    ] {
        assert_eq!((is_label(text), is_subdomain(text)), (label, subdomain), "{text:?}");
    }
}

/// A part of few characters, so that names are near each other.
fn part() -> impl Strategy<Value = String> {
    "[ab]([ab.-]{0,4}[ab])?".prop_filter("a name", |name| is_subdomain(name))
}

fn long_part() -> impl Strategy<Value = String> {
    prop_oneof![
        part(),
        (part(), 200_usize..253).prop_map(|(part, length)| format!("{}{part}", "a".repeat(length - part.len()))),
    ]
}

type Claim = (String, u8, String, String, Attribute);

fn claims() -> impl Strategy<Value = Claim> {
    let attribute = prop::sample::select(Attribute::ALL.to_vec());
    let namespace = part().prop_map(|name| name.replace('.', "-"));
    (long_part(), 0_u8..7, namespace, long_part(), attribute)
}

fn name((pool, kind, namespace, name, attribute): &Claim) -> String {
    let owner = match kind {
        0 => Owner::NetworkInterface { namespace, name },
        1 => Owner::Subnet(name),
        2 => Owner::Vpc(name),
        3 => Owner::RouteTable(name),
        4 => Owner::Node(name),
        5 => Owner::ServiceNatAttachment(name),
        _ => Owner::VpcEndpoint(name),
    };
    claim(pool, owner, *attribute)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn distinct_claims_have_distinct_names(mut a in claims(), mut b in claims(), alike in any::<[bool; 5]>()) {
        // Mostly alike, so that what could be mixed up is.
        if alike[0] { b.0.clone_from(&a.0); }
        if alike[1] { b.1 = a.1; }
        if alike[2] { b.2.clone_from(&a.2); }
        if alike[3] { b.3.clone_from(&a.3); }
        if alike[4] { b.4 = a.4; }
        for claim in [&mut a, &mut b] {
            if claim.1 != 0 { claim.2.clear(); }
        }
        let (one, other) = (name(&a), name(&b));
        prop_assert!(is_subdomain(&one), "{one}");
        prop_assert_eq!(a == b, one == other, "{:?} {:?}", a, b);
    }

    #[test]
    fn distinct_interfaces_have_distinct_names(
        a in (long_part(), "[ab](-?[ab]){0,3}"), b in (long_part(), "[ab](-?[ab]){0,3}"),
    ) {
        let (one, other) = (interface(&a.0, &a.1), interface(&b.0, &b.1));
        prop_assert!(is_subdomain(&one), "{one}");
        prop_assert_eq!(a == b, one == other);
    }

    #[test]
    fn distinct_nodes_and_vpcs_have_distinct_names(a in (long_part(), long_part()), b in (long_part(), long_part())) {
        for name in [service_nat_attachment, service_nat_endpoint] {
            let (one, other) = (name(&a.0, &a.1), name(&b.0, &b.1));
            prop_assert!(is_subdomain(&one), "{one}");
            prop_assert_eq!(a == b, one == other);
        }
    }

    #[test]
    fn distinct_prefixes_have_distinct_pools(
        a in ("[0-9](-[0-9]){0,3}", 0_u32..9), b in ("[0-9](-[0-9]){0,3}", 0_u32..9),
    ) {
        let prefix = |bits: u32| Ipv4Net::new_assert(std::net::Ipv4Addr::from_bits(bits << 24), 32);
        let (one, other) = (endpoint_pool(&a.0, prefix(a.1)), endpoint_pool(&b.0, prefix(b.1)));
        prop_assert_eq!(a == b, one == other);
    }

    #[test]
    fn distinct_leases_have_distinct_names(
        a in (long_part(), 0_u32..30), b in (long_part(), 0_u32..30), kinds in any::<[bool; 2]>(),
    ) {
        let value = |number: u32, is_number: bool| {
            if is_number { LeaseValue::Number(number) } else { LeaseValue::Address(std::net::Ipv4Addr::from_bits(number).into()) }
        };
        let (of_a, of_b) = (value(a.1, kinds[0]), value(b.1, kinds[1]));
        let (one, other) = (lease(&a.0, of_a), lease(&b.0, of_b));
        prop_assert!(is_subdomain(&one), "{one}");
        prop_assert_eq!((a.0, of_a) == (b.0, of_b), one == other);
    }

    #[test]
    fn any_text_makes_a_name(text in "\\PC{0,300}") {
        let owner = Owner::NetworkInterface { namespace: &text, name: &text };
        let name = claim(&text, owner, Attribute::Address);
        prop_assert!(is_subdomain(&name), "{name}");
    }
}
