//! Names of objects and devices that are derived from others.
//!
//! Each is readable and, for what users usually write, exactly what it always was. Where a name would be too long, or
//! where writing it with fewer characters would make two things alike, the cut or folded name is followed by a dot and
//! a hash of the whole, so that distinct things have distinct names. No other name has that form: one that happens to
//! end like it has a hash added as well.

use core::net::IpAddr;
use ipnet::Ipv4Net;
use sha2::{Digest as _, Sha256};

/// Longest name of an object, in bytes: a DNS subdomain (RFC 1123 as Kubernetes has it).
pub const NAME_MAX: usize = 253;
/// Longest label's value, and longest name of a Namespace or Service, in bytes: a DNS label (RFC 1123).
pub const LABEL_MAX: usize = 63;
/// Longest name of a network device, in bytes (`IFNAMSIZ` less the terminating zero).
pub const DEVICE_MAX: usize = 15;
/// Longest name of a Pod's interface in annotations, in bytes.
pub const INTERFACE_MAX: usize = 8;

/// Pool of VXLAN network identifiers, 2 to 16777215.
pub const SUBNET_VNI_POOL: &str = "subnet-vni";
/// Pool of VPC numbers, 2 to 16777215.
pub const VPC_ID_POOL: &str = "vpc-id";
/// Pool of RouteTable numbers, 2 to 4294967295.
pub const ROUTE_TABLE_ID_POOL: &str = "route-table-id";
/// The Vpc that nodes and untouched Pods are in, its Subnet and its main RouteTable.
pub const DEFAULT: &str = "default";

/// Values that are claimed for an object. Folded they differ from each other, which claims' names rest on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Attribute {
    /// The address of a NetworkInterface.
    Address,
    /// The VXLAN network identifier of a Subnet.
    Vni,
    /// The number of a Vpc.
    VpcId,
    /// The number of a RouteTable.
    TableId,
    /// The address of a node in the Subnet `default`.
    NodeAddress,
    /// The address of a ServiceNATAttachment.
    ServiceNatAddress,
    /// The address of a VpcEndpoint.
    EndpointAddress,
}

impl Attribute {
    /// Every attribute.
    pub const ALL: [Self; 7] = [
        Self::Address,
        Self::Vni,
        Self::VpcId,
        Self::TableId,
        Self::NodeAddress,
        Self::ServiceNatAddress,
        Self::EndpointAddress,
    ];

    /// Whether the value is an address; otherwise it is a number.
    #[must_use]
    pub const fn is_address(self) -> bool {
        match self {
            Self::Vni | Self::VpcId | Self::TableId => false,
            Self::Address | Self::NodeAddress | Self::ServiceNatAddress | Self::EndpointAddress => true,
        }
    }

    /// As `spec.attribute` of a claim has it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Vni => "status.vni",
            Self::VpcId => "status.vpcID",
            Self::TableId => "status.tableID",
            Self::NodeAddress => "juneauNode.assignedIP",
            Self::ServiceNatAddress => "status.assignedIP",
            Self::EndpointAddress => "status.address",
        }
    }
}

/// Kinds that values are claimed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Owner<'n> {
    /// A NetworkInterface.
    NetworkInterface {
        /// Its namespace.
        namespace: &'n str,
        /// Its name.
        name: &'n str,
    },
    /// A Subnet.
    Subnet(&'n str),
    /// A Vpc.
    Vpc(&'n str),
    /// A RouteTable.
    RouteTable(&'n str),
    /// A node.
    Node(&'n str),
    /// A ServiceNATAttachment.
    ServiceNatAttachment(&'n str),
    /// A VpcEndpoint.
    VpcEndpoint(&'n str),
}

impl<'n> Owner<'n> {
    const fn parts(self) -> (&'static str, Option<&'n str>, &'n str) {
        match self {
            Self::NetworkInterface { namespace, name } => ("networkinterface", Some(namespace), name),
            Self::Subnet(name) => ("subnet", None, name),
            Self::Vpc(name) => ("vpc", None, name),
            Self::RouteTable(name) => ("routetable", None, name),
            Self::Node(name) => ("node", None, name),
            Self::ServiceNatAttachment(name) => ("servicenatattachment", None, name),
            Self::VpcEndpoint(name) => ("vpcendpoint", None, name),
        }
    }
}

/// The NetworkInterface, and the NetworkEndpoint, of a Pod's interface: `<pod>.<nic>`.
#[must_use]
pub fn interface(pod: &str, nic: &str) -> String {
    bounded(format!("{pod}.{nic}"), NAME_MAX)
}

/// What the names of all interfaces of a Pod begin with; those of another Pod may begin so as well.
#[must_use]
pub fn interface_prefix(pod: &str) -> String {
    // As `hashed` cuts it.
    let kept = NAME_MAX - HASH_CHARACTERS - 1;
    if pod.len() < kept {
        return format!("{pod}.");
    }
    let cut = pod.char_indices().take_while(|(at, c)| at + c.len_utf8() <= kept).map(|(_, c)| c);
    cut.collect::<String>().trim_end_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned()
}

/// The NetworkEndpoint of a node: `juneau-node.<node>`.
#[must_use]
pub fn node_endpoint(node: &str) -> String {
    bounded(format!("juneau-node.{node}"), NAME_MAX)
}

/// The ServiceNATAttachment of a node for a Vpc: `<node>.<vpc>`, with a hash where the Vpc's name has a dot.
#[must_use]
pub fn service_nat_attachment(node: &str, vpc: &str) -> String {
    of_node_and_vpc("", node, vpc)
}

/// The NetworkEndpoint of a ServiceNATAttachment: `juneau-nat.<node>.<vpc>`, with a hash where the Vpc's name has a dot.
#[must_use]
pub fn service_nat_endpoint(node: &str, vpc: &str) -> String {
    of_node_and_vpc("juneau-nat.", node, vpc)
}

fn of_node_and_vpc(before: &str, node: &str, vpc: &str) -> String {
    let name = format!("{before}{node}.{vpc}");
    // A node's name may have dots, so the last one has to be that between the two.
    if vpc.contains('.') { hashed(&name, &[before, node, vpc].join("\0"), NAME_MAX) } else { bounded(name, NAME_MAX) }
}

/// The AllocationPool of a prefix of a Vpc's endpoint pool: `endpoint-ip-<vpc>-<prefix>`, dots and slash of the prefix
/// as `-`.
#[must_use]
pub fn endpoint_pool(vpc: &str, prefix: Ipv4Net) -> String {
    let prefix = prefix.trunc().to_string().replace(['.', '/'], "-");
    bounded(format!("endpoint-ip-{vpc}-{prefix}"), NAME_MAX)
}

/// The main RouteTable of a Vpc: its name.
#[must_use]
pub fn main_route_table(vpc: &str) -> String {
    vpc.to_owned()
}

/// The AllocationPool of a Subnet's addresses: `subnet-ip-<subnet>`.
#[must_use]
pub fn subnet_pool(subnet: &str) -> String {
    bounded(format!("subnet-ip-{subnet}"), NAME_MAX)
}

/// An AllocationClaim: `<pool>--<kind>--[<namespace>--]<name>--<attribute>`, in lower case and with dots turned into
/// `-`. A hash is added where that loses something: when the pool's, the namespace's or the object's name has `--` or
/// anything but letters, digits and `-`; the dot of `<pod>.<nic>` loses nothing unless `<nic>` has a `-`.
#[must_use]
pub fn claim(pool: &str, owner: Owner<'_>, attribute: Attribute) -> String {
    let (kind, namespace, name) = owner.parts();
    let folded_name = match (owner, name.rsplit_once('.')) {
        (Owner::NetworkInterface { .. }, Some((pod, nic))) if !nic.contains('-') && is_plain(nic) => {
            is_plain(pod).then(|| format!("{pod}-{nic}"))
        }
        (Owner::NetworkInterface { .. }, _) => None,
        _ => is_plain(name).then(|| name.to_owned()),
    };
    let attribute = fold(attribute.as_str());
    let namespace_is_plain = namespace.is_none_or(is_plain);
    let parts = |name: &str| {
        let namespace = namespace.map(|namespace| format!("{}--", fold(namespace))).unwrap_or_default();
        format!("{}--{kind}--{namespace}{}--{attribute}", fold(pool), fold(name))
    };
    match folded_name {
        // Without a dot it does not look like a name with a hash.
        Some(name) if is_plain(pool) && namespace_is_plain && parts(&name).len() <= NAME_MAX => parts(&name),
        _ => {
            let whole = [pool, kind, namespace.unwrap_or_default(), name, &attribute].join("\0");
            hashed(&parts(name), &whole, NAME_MAX)
        }
    }
}

/// An AllocationLease: `<pool>--<value>`, with the dots of an address as `-`. One value of one pool has one name, so
/// the API server lets one lease of it exist.
#[must_use]
pub fn lease(pool: &str, value: LeaseValue) -> String {
    let value = match value {
        LeaseValue::Number(number) => number.to_string(),
        LeaseValue::Address(IpAddr::V4(address)) => address.to_string().replace('.', "-"),
        // All eight groups, since `::` would look like what stands before the value.
        LeaseValue::Address(IpAddr::V6(address)) => address.segments().map(|g| format!("{g:04x}")).join("-"),
    };
    let pool = bounded(pool.to_owned(), NAME_MAX - 2 - value.len());
    format!("{pool}--{value}")
}

/// What an AllocationLease is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LeaseValue {
    /// A number.
    Number(u32),
    /// An address.
    Address(IpAddr),
}

/// The value of a label that names an object.
#[must_use]
pub fn label_value(name: &str) -> String {
    bounded(name.to_owned(), LABEL_MAX)
}

/// The host's end of a Pod's interface: the interface's name and as much of the container id as fits.
#[must_use]
pub fn host_veth(nic: &str, container_id: &str) -> String {
    nic.chars().chain(container_id.chars()).take(DEVICE_MAX).collect()
}

/// Whether a text is a DNS label (RFC 1123) of at most [`LABEL_MAX`] bytes.
#[must_use]
pub fn is_label(text: &str) -> bool {
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.len() <= LABEL_MAX
        && bytes.iter().all(|byte| alphanumeric(*byte) || *byte == b'-')
        && bytes.first().is_some_and(|byte| alphanumeric(*byte))
        && bytes.last().is_some_and(|byte| alphanumeric(*byte))
}

/// Whether a text is a DNS subdomain as Kubernetes wants objects' names to be: labels without a limit of their own,
/// at most [`NAME_MAX`] bytes in all.
#[must_use]
pub fn is_subdomain(text: &str) -> bool {
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.len() <= NAME_MAX
        && text.split('.').all(|label| {
            let bytes = label.as_bytes();
            bytes.iter().all(|byte| alphanumeric(*byte) || *byte == b'-')
                && bytes.first().is_some_and(|byte| alphanumeric(*byte))
                && bytes.last().is_some_and(|byte| alphanumeric(*byte))
        })
}

/// Whether a part of a claim's name can be read back from it: folding leaves it as it is, and it cannot be taken for
/// two parts.
fn is_plain(part: &str) -> bool {
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = part.as_bytes();
    bytes.iter().all(|byte| alphanumeric(*byte) || *byte == b'-')
        && bytes.first().is_some_and(|byte| alphanumeric(*byte))
        && bytes.last().is_some_and(|byte| alphanumeric(*byte))
        && !part.contains("--")
}

/// In lower case, and anything but letters, digits and `-` as `-`.
fn fold(text: &str) -> String {
    let fold = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    text.chars().map(fold).collect()
}

/// Characters of a hash: 80 bits, so that nobody finds a second name for one that somebody else has.
const HASH_CHARACTERS: usize = 16;

/// A name as it is, if it has at most `max` bytes and cannot be taken for one with a hash; else as much of it as fits, a
/// dot, and a hash of the whole. A hash takes 16 bytes, however small `max` is.
#[must_use]
pub fn bounded(name: String, max: usize) -> String {
    let like_hashed = name.rsplit_once('.').is_some_and(|(_, last)| {
        last.len() == HASH_CHARACTERS && last.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'2'..=b'7'))
    });
    if name.len() <= max && !like_hashed { name } else { hashed(&name, &name, max) }
}

/// As much of a readable name as fits, a dot, and a hash of the whole.
fn hashed(readable: &str, whole: &str, max: usize) -> String {
    let mut kept = readable.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    let mut end = kept.len().min(max.saturating_sub(HASH_CHARACTERS + 1));
    while !kept.is_char_boundary(end) {
        end -= 1;
    }
    kept = kept[..end].trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
    let hash = hash(whole);
    if kept.is_empty() { hash } else { format!("{kept}.{hash}") }
}

/// SHA-256, its first 80 bits in base 32 (RFC 4648, lower case).
fn hash(whole: &str) -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let digest = Sha256::digest(whole.as_bytes());
    let bits = digest.iter().take(10).fold(0_u128, |bits, byte| bits << 8 | u128::from(*byte));
    (0..HASH_CHARACTERS).rev().map(|place| char::from(ALPHABET[(bits >> (5 * place)) as usize & 31])).collect()
}

#[cfg(test)]
mod tests;
