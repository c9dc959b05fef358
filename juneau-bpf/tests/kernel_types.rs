//! `bpf-src/include/juneau/kernel.h`, which is written by hand, against the running kernel's type information.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use juneau_bpf::OBJECT;
use libbpf_rs::HasSize;
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{MemberAttr, Struct};

/// Kernel's name, ours, and whether ours is the beginning of the kernel's only.
const STRUCTS: [(&str, &str, bool); 9] = [
    ("__sk_buff", "__sk_buff", true),
    ("bpf_tunnel_key", "bpf_tunnel_key", true),
    ("bpf_redir_neigh", "bpf_redir_neigh", false),
    ("ethhdr", "jn_ethernet", false),
    ("iphdr", "jn_ipv4", false),
    ("tcphdr", "jn_tcp", false),
    ("udphdr", "jn_udp", false),
    ("icmphdr", "jn_icmp", false),
    ("vxlanhdr", "jn_vxlan_header", false),
];

/// Names and offsets in bits; bit fields are left out.
fn fields(of: &Struct<'_>) -> Vec<(String, u32)> {
    of.iter()
        .filter_map(|member| {
            let MemberAttr::Normal { offset } = member.attr else { return None };
            Some((member.name?.to_str()?.to_owned(), offset))
        })
        .collect()
}

#[test]
fn hand_written_types_are_the_kernels() {
    let ours = Btf::from_raw("juneau", OBJECT).unwrap().expect("the object has type information");
    let kernel = match Btf::from_vmlinux() {
        Ok(kernel) => kernel,
        Err(error) => {
            #[expect(clippy::print_stderr, reason = "how tests announce that they are skipped")]
            {
                eprintln!("SKIPPED 1: the kernel has no type information ({error})");
            }
            return;
        }
    };
    let mut compared = 0;
    for (theirs, own, beginning) in STRUCTS {
        // A driver that is a module has its types elsewhere; a type that no code of ours uses is not in the object.
        let Some(theirs_type) = kernel.type_by_name::<Struct<'_>>(theirs) else {
            assert_eq!(theirs, "vxlanhdr");
            continue;
        };
        let own_type = ours.type_by_name::<Struct<'_>>(own).unwrap_or_else(|| panic!("{own} is not in the object"));
        if beginning {
            assert!(own_type.size() <= theirs_type.size(), "{own}");
        } else {
            assert_eq!(own_type.size(), theirs_type.size(), "{own}");
        }
        if theirs == own {
            let kernels = fields(&theirs_type);
            for field in fields(&own_type) {
                // A bit field of the kernel's, and what it keeps in unions without a name.
                if !["tstamp_type", "flow_keys", "sk", "tunnel_ext"].contains(&field.0.as_str()) {
                    assert!(kernels.contains(&field), "{own}: {field:?}");
                }
            }
        }
        compared += 1;
    }
    assert!(compared >= 8);
}
