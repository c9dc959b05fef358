//! What the operator made, without what differs between two runs of equal input.
//!
//! Numbers and addresses depend on the order in which objects were met, so each is replaced by the name of the claim
//! that it was given to, wherever it stands: two runs are equal when there is a bijection between what they gave out.
//! Uids are replaced by the names of their objects; MAC addresses follow from uids. Versions, generations and times go.

use serde_json::{Map, Value};
use std::collections::BTreeMap;

const DROPPED: [&str; 10] = [
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "managedFields",
    "selfLink",
    "lastTransitionTime",
    "observedGeneration",
    "expiresAt",
    "macAddress",
    "apiVersion",
];

fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The value of a claim or a lease, as a text.
fn given(value: &Value) -> Option<String> {
    let value = value.as_object()?.values().next()?;
    Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

struct Names {
    /// By uid.
    objects: BTreeMap<String, String>,
    /// By what is numbered (`vpcID`, `vni`, `tableID`) and the number.
    numbers: BTreeMap<(String, String), String>,
    /// By Subnet and address.
    addresses: BTreeMap<(String, String), String>,
}

impl Names {
    fn value(&self, key: &str, subnet: &str, value: Value) -> Option<Value> {
        Some(match value {
            Value::Object(members) => Value::Object(self.members(subnet, members)),
            Value::Array(items) => items.into_iter().filter_map(|item| self.value(key, subnet, item)).collect(),
            Value::Number(number) => match self.numbers.get(&(key.to_owned(), number.to_string())) {
                Some(name) => name.as_str().into(),
                None => Value::Number(number),
            },
            Value::String(text) => {
                let address = text.split('/').next().unwrap_or_default().to_owned();
                let name = self.addresses.get(&(subnet.to_owned(), address)).or_else(|| self.objects.get(&text));
                name.map_or(Value::String(text), |name| name.as_str().into())
            }
            other => other,
        })
    }

    fn members(&self, subnet: &str, members: Map<String, Value>) -> Map<String, Value> {
        let kept = members.into_iter().filter(|(key, _)| !DROPPED.contains(&key.as_str()) && !key.ends_with("MAC"));
        kept.filter_map(|(key, value)| Some((key.clone(), self.value(&key, subnet, value)?))).collect()
    }
}

/// The canonical form of all objects: by kind, namespace and name. Claims and leases are checked against each other and
/// against what they are for.
pub fn canonical(objects: &[Value], others: &[Value]) -> BTreeMap<String, Value> {
    let name = |object: &Value| {
        format!("{} {}/{}", text(object, "/kind"), text(object, "/metadata/namespace"), text(object, "/metadata/name"))
    };
    let of = |kind: &'static str| objects.iter().filter(move |object| object["kind"] == kind);
    let mut names = Names { objects: BTreeMap::new(), numbers: BTreeMap::new(), addresses: BTreeMap::new() };
    for object in objects.iter().chain(others) {
        names.objects.insert(text(object, "/metadata/uid").to_owned(), name(object));
        assert!(object.pointer("/metadata/deletionTimestamp").is_none(), "{object} is being deleted");
    }
    let mut claimed = BTreeMap::new();
    for claim in of("AllocationClaim") {
        let owner = names.objects.get(text(claim, "/spec/resourceRef/uid"));
        let owner = owner.unwrap_or_else(|| panic!("nobody is left that {claim} is for"));
        assert!(owner.contains(text(claim, "/spec/resourceRef/name")), "{claim} is for {owner}");
        let value = given(&claim["status"]["value"]).unwrap_or_else(|| panic!("{claim} has no value"));
        claimed.insert(text(claim, "/metadata/uid").to_owned(), (name(claim), value));
    }
    let mut made = BTreeMap::new();
    let mut unheld = claimed.clone();
    for lease in of("AllocationLease") {
        let uid = text(lease, "/spec/claimRef/uid");
        let (claim, value) = unheld.remove(uid).unwrap_or_else(|| panic!("{lease} has no claim, or a second one"));
        assert_eq!(given(&lease["spec"]["value"]), Some(value), "{lease}");
        let mut lease = lease.clone();
        lease["metadata"] = Value::Null;
        lease["spec"]["value"] = Value::Null;
        made.insert(format!("lease of {claim}"), lease);
    }
    assert!(unheld.is_empty(), "claims without a lease: {unheld:?}");
    for (kind, key) in [("Vpc", "vpcID"), ("Subnet", "vni"), ("RouteTable", "tableID")] {
        for object in of(kind) {
            let number = &object["status"][key];
            assert!(number.is_u64(), "{object} has no {key}");
            let before =
                names.numbers.insert((key.to_owned(), number.to_string()), format!("{key} of {}", name(object)));
            assert_eq!(before, None, "{number} twice");
        }
    }
    for nic in of("NetworkInterface") {
        let address = text(nic, "/status/address").split('/').next().unwrap_or_default();
        assert!(address.parse::<std::net::Ipv4Addr>().is_ok(), "{nic} has no address");
        let key = (text(nic, "/spec/subnet").to_owned(), address.to_owned());
        assert_eq!(names.addresses.insert(key, format!("address of {}", name(nic))), None, "{address} twice");
    }
    // Those of nodes have no interface.
    for endpoint in of("NetworkEndpoint") {
        let address = text(endpoint, "/spec/address").split('/').next().unwrap_or_default().to_owned();
        let key = (text(endpoint, "/spec/subnet").to_owned(), address);
        names.addresses.entry(key).or_insert_with(|| format!("address of {}", name(endpoint)));
    }
    for object in objects.iter().filter(|object| object["kind"] != "AllocationLease") {
        made.insert(name(object), object.clone());
    }
    for claim in of("AllocationClaim") {
        // That it is the right one is seen at what it is for.
        made.entry(name(claim)).and_modify(|claim| claim["status"]["value"] = Value::Null);
    }
    made.into_iter()
        .map(|(key, object)| {
            // That of a ServiceNATAttachment follows from its Vpc.
            let place = ["/spec/subnet", "/status/subnet"].map(|place| text(&object, place));
            let subnet = place.into_iter().find(|subnet| !subnet.is_empty()).unwrap_or_default().to_owned();
            let mut object = object;
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.remove("uid");
            }
            (key, names.value("", &subnet, object).unwrap_or_default())
        })
        .collect()
}
