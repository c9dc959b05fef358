//! `juneau-core`'s layouts and numbers against the type information of the object, field by field.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;

use juneau_bpf::OBJECT;
use juneau_core::layout::{ENUMERATORS, IDENTITY_ANY, MIRRORS};
use juneau_core::verdict::{Action, Hook, Reason};
use libbpf_rs::HasSize;
use libbpf_rs::btf::types::{Enum, MemberAttr, Struct};
use libbpf_rs::btf::{Btf, BtfType};

fn btf() -> Btf<'static> {
    Btf::from_raw("juneau", OBJECT).unwrap().expect("the object has type information")
}

/// Bytes of a type, behind names and qualifiers.
fn size(ty: BtfType<'_>) -> usize {
    let ty = ty.skip_mods_and_typedefs();
    libbpf_rs::btf_type_match!(match ty {
        BtfKind::Int(t) => t.size(),
        BtfKind::Struct(t) => t.size(),
        BtfKind::Union(t) => t.size(),
        BtfKind::Enum(t) => t.size(),
        BtfKind::Array(t) => t.capacity() * size(t.contained_type()),
        _ => panic!("no size: {ty:?}"),
    })
}

/// Every enumerator of the object.
fn enumerators(btf: &Btf<'_>) -> BTreeMap<String, i64> {
    let mut found = BTreeMap::new();
    for index in 1..=u32::try_from(btf.len()).unwrap() {
        let Some(ty) = btf.type_by_id::<BtfType<'_>>(index.into()) else { continue };
        let Ok(of) = Enum::try_from(ty) else { continue };
        for member in of.iter() {
            if let Some(name) = member.name {
                found.insert(name.to_string_lossy().into_owned(), member.value);
            }
        }
    }
    found
}

#[test]
fn structs_are_those_of_the_object() {
    let btf = btf();
    for mirror in MIRRORS {
        let of = btf.type_by_name::<Struct<'_>>(mirror.name);
        let of = of.unwrap_or_else(|| panic!("{} is not in the object", mirror.name));
        assert_eq!(of.size(), mirror.size, "{}", mirror.name);
        let fields: Vec<_> = of
            .iter()
            .map(|member| {
                let MemberAttr::Normal { offset } = member.attr else { panic!("{}: a bit field", mirror.name) };
                let ty: BtfType<'_> = btf.type_by_id(member.ty).unwrap();
                (member.name.unwrap().to_str().unwrap().to_owned(), offset as usize / 8, size(ty))
            })
            .collect();
        let mirrored: Vec<_> = mirror.fields.iter().map(|f| (f.name.to_owned(), f.offset, f.size)).collect();
        assert_eq!(mirrored, fields, "{}", mirror.name);
    }
}

#[test]
fn every_enumerator_has_the_value_of_the_object() {
    let found = enumerators(&btf());
    let mut missing = Vec::new();
    let mut check = |name: &str, value: i64| match found.get(name) {
        Some(other) => assert_eq!(value, *other, "{name}"),
        None => missing.push(name.to_owned()),
    };
    for enumerator in ENUMERATORS {
        check(enumerator.name, enumerator.value);
    }
    Hook::ALL.iter().for_each(|hook| check(hook.c_name(), hook.number().into()));
    Reason::ALL.iter().for_each(|reason| check(reason.c_name(), reason.number().into()));
    Action::ALL.iter().for_each(|action| check(action.c_name(), action.number().into()));
    assert_eq!(missing, [""; 0], "not in the object");
    assert_eq!(found.get("JN_IDENTITY_ANY").map(|any| *any as u32), Some(IDENTITY_ANY));
}

#[test]
fn every_number_of_the_object_is_known_here() {
    let known: Vec<&str> = ENUMERATORS
        .iter()
        .map(|e| e.name)
        .chain(Hook::ALL.iter().map(|v| v.c_name()))
        .chain(Reason::ALL.iter().map(|v| v.c_name()))
        .chain(Action::ALL.iter().map(|v| v.c_name()))
        .chain(["JN_IDENTITY_UNKNOWN", "JN_IDENTITY_ANY"])
        .collect();
    let header = ["abi.h", "maps.h"].map(|name| {
        std::fs::read_to_string(format!("{}/bpf-src/include/juneau/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
    });
    // Constants of single programs are nobody else's business.
    let shared = |name: &String| header.iter().any(|text| text.contains(&format!("{name} =")));
    let mut unknown: Vec<String> = enumerators(&btf()).into_keys().filter(shared).collect();
    unknown.retain(|name| !known.contains(&name.as_str()));
    assert_eq!(unknown, [""; 0], "without a counterpart in juneau-core");
}
