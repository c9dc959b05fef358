//! What one object can get wrong by itself, a table for each kind.
//!
//! Every list, map and text of a spec has an upper bound: an API server refuses rules whose cost it cannot bound.
//! Texts that rules read as addresses are guarded, since such a function fails on what is none, and the failure would
//! be shown beside the rule that says so in words.

use super::constraint::{Constraint, at};

/// Longest name of an object.
const NAME: i64 = 253;
/// Longest prefix as a text: IPv6 too, so that the rule says what is wrong and not the length.
const CIDR: i64 = 43;
/// Longest address as a text.
const ADDRESS: i64 = 39;
/// Most Route objects of a table.
const ROUTES: i64 = 4096;
/// Most prefixes of a pool.
const CIDRS: i64 = 32;
/// Longest Kubernetes uid: 36 characters are usual.
const UID: i64 = 128;

const SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
const INTERFACE: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
const MAC: &str = "^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}$";
const DURATION: &str = r"^(0|([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+)$";

const UNCHANGED: &str = "cannot be changed; create another object instead";
const IPV4_PREFIX: &str = "is not an IPv4 prefix; write an address and a length, as in 10.0.1.0/24";
const IPV4: &str = "is not an IPv4 address; write one without a length, as in 10.0.1.20";

/// A number with a leading zero, which some read as octal.
const LEADING_ZERO: &str = "'(^|[./])0[0-9]'";

/// Addresses that no packet may have.
const RESERVED: &str = "['0.0.0.0/8', '127.0.0.0/8', '169.254.0.0/16', '224.0.0.0/4', '240.0.0.0/4']";

trait Common: Sized {
    /// Never changes. The field is always there.
    fn immutable(self) -> Self;
    /// A field of this object that is always there or never, and does not change.
    fn immutable_if_there(self, field: &str) -> Self;
    /// Exactly one of these fields is there and not empty.
    fn exactly_one(self, fields: &[&str]) -> Self;
    /// An object's name, as others refer to it.
    fn name(self) -> Self;
    /// A uid.
    fn uid(self) -> Self;
    /// An IPv4 prefix, host bits or not.
    fn prefix(self) -> Self;
    /// An IPv4 address.
    fn address(self) -> Self;
    /// A duration of at least 0.
    fn duration(self) -> Self;
}

impl Common for Constraint {
    fn immutable(self) -> Self {
        self.rule("self == oldSelf", UNCHANGED)
    }

    fn immutable_if_there(self, field: &str) -> Self {
        self.rule(
            format!(
                "has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})"
            ),
            format!("{field} {UNCHANGED}"),
        )
    }

    fn exactly_one(self, fields: &[&str]) -> Self {
        let there: Vec<_> = fields.iter().map(|field| format!("has(self.{field}) && self.{field} != ''")).collect();
        let rule = format!("[{}].filter(there, there).size() == 1", there.join(", "));
        self.rule(rule, format!("set exactly one of {}", fields.join(", ")))
    }

    fn name(self) -> Self {
        self.length(1, NAME)
    }

    fn uid(self) -> Self {
        self.length(1, UID)
    }

    fn prefix(self) -> Self {
        self.length(0, CIDR).rule(is_prefix("self"), IPV4_PREFIX)
    }

    fn address(self) -> Self {
        self.length(0, ADDRESS).rule("self == '' || (isIP(self) && ip(self).family() == 4)", IPV4)
    }

    fn duration(self) -> Self {
        self.length(1, 32).pattern(DURATION)
    }
}

/// The rule that a text is an IPv4 prefix, host bits or not.
fn is_prefix(text: &str) -> String {
    format!("isCIDR({text}) && cidr({text}).ip().family() == 4 && !{text}.matches({LEADING_ZERO})")
}

/// Prefixes of a list: IPv4, of these lengths, outside of what no packet may have, none in another.
fn prefixes(list: Constraint, min: u8, max: u8) -> Constraint {
    let all = |rule: &str| format!("self.all(a, !isCIDR(a) || ({rule}))");
    list.rule(format!("self.all(a, {})", is_prefix("a")), format!("an element {IPV4_PREFIX}"))
        .rule(
            all(&format!("cidr(a).prefixLength() >= {min} && cidr(a).prefixLength() <= {max}")),
            format!("an element is not within /{min} to /{max}"),
        )
        .rule(
            all(&format!("{RESERVED}.all(r, !cidr(r).containsCIDR(a))")),
            "an element holds addresses that no packet may have: 0/8, 127/8, 169.254/16 or 224/3",
        )
        .rule(
            "self.all(a, !isCIDR(a) || self.all(b, a == b || !isCIDR(b) || !cidr(a).containsCIDR(cidr(b).masked())))",
            "two elements overlap",
        )
}

fn conditions() -> Constraint {
    at("status.conditions").map("type")
}

pub(super) fn vpc() -> Vec<Constraint> {
    let selector = "spec.allowedNamespaces";
    vec![
        at("spec.service.provider.natSourceSubnet").name(),
        prefixes(at("spec.endpointPool.cidrs").items(1, CIDRS).set(), 16, 32),
        at("spec.endpointPool.cidrs[]").length(0, CIDR),
        at(selector).atomic(),
        at(&format!("{selector}.matchLabels")).entries(32),
        at(&format!("{selector}.matchLabels{{}}")).length(0, 63),
        at(&format!("{selector}.matchExpressions")).items(0, 32),
        at(&format!("{selector}.matchExpressions[]")).rule(
            "(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",
            "In and NotIn need values, Exists and DoesNotExist have none",
        ),
        at(&format!("{selector}.matchExpressions[].key")).length(1, 317),
        at(&format!("{selector}.matchExpressions[].operator")).one_of(&["In", "NotIn", "Exists", "DoesNotExist"]),
        at(&format!("{selector}.matchExpressions[].values")).items(0, 64),
        at(&format!("{selector}.matchExpressions[].values[]")).length(0, 63),
        conditions(),
    ]
}

pub(super) fn subnet() -> Vec<Constraint> {
    vec![
        at("")
            .rule(
                "(self.metadata.name == 'default') == (self.spec.vpc == 'default')",
                "Subnet default is the only one of Vpc default, and is in no other Vpc",
            )
            .rule(
                "self.metadata.name != 'default' || !has(self.spec.routeTable) || self.spec.routeTable == ''",
                "Subnet default uses the main RouteTable of Vpc default; remove spec.routeTable",
            ),
        at("spec.vpc").name().immutable(),
        at("spec.cidr")
            .prefix()
            .rule(
                "!isCIDR(self) || (cidr(self).prefixLength() >= 16 && cidr(self).prefixLength() <= 28)",
                "is not within /16 to /28",
            )
            .rule(
                format!("!isCIDR(self) || {RESERVED}.all(r, !cidr(r).containsCIDR(self))"),
                "holds addresses that no packet may have: 0/8, 127/8, 169.254/16 or 224/3",
            )
            // Host bits mean nothing, so a manifest that has them and one that does not are the same. Prefixes are not
            // compared by ==, whose cost an API server cannot bound.
            .rule(
                "self == oldSelf || (isCIDR(self) && isCIDR(oldSelf) \
                 && cidr(self).containsCIDR(oldSelf) && cidr(oldSelf).containsCIDR(self))",
                UNCHANGED,
            ),
        at("spec.routeTable").length(0, NAME),
        at("spec.networkACL").length(0, NAME),
        at("spec.quarantine").duration(),
        at("status.vni").range(1, 16_777_215),
        conditions(),
    ]
}

pub(super) fn route_table() -> Vec<Constraint> {
    let target = |field: &str, kind: &str| {
        (
            format!("(has(self.{field}) && self.{field} != '') == (self.type == '{kind}')"),
            format!("{field} is set with type {kind}, and only then"),
        )
    };
    let via = [
        target("endpointName", "endpoint"),
        target("natGateway", "natGateway"),
        target("vpcPeering", "vpcPeering"),
        target("transitGateway", "transitGateway"),
        ("has(self.vpn) == (self.type == 'vpn')".to_owned(), "vpn is set with type vpn, and only then".to_owned()),
    ];
    let mut constraints = vec![
        at("spec.vpc").name().immutable(),
        at("spec.routes").items(0, ROUTES).map("dst").rule(
            "self.all(route, !(route.via.type in ['service', 'vpcEndpoint']))",
            "routes of type service and vpcEndpoint are made automatically",
        ),
        at("spec.routes[].dst").prefix().rule(
            "!isCIDR(self) || string(cidr(self).masked()) == self",
            "has host bits set; write the prefix without them",
        ),
        via.into_iter().fold(at("spec.routes[].via"), |via, (rule, message)| via.rule(rule, message)),
        // With a namespace in front.
        at("spec.routes[].via.endpointName").length(0, NAME + 64),
        at("spec.routes[].via.natGateway").length(0, NAME),
        at("spec.routes[].via.vpcPeering").length(0, NAME),
        at("spec.routes[].via.transitGateway").length(0, NAME),
        at("spec.routes[].via.vpn.namespace").length(1, 63),
        at("spec.routes[].via.vpn.name").name(),
        conditions(),
    ];
    for field in ["subnet", "l2Network", "transitGatewayRouteTable"] {
        constraints.push(at(&format!("spec.routes[].{field}")).length(0, NAME));
    }
    constraints
}

pub(super) fn network_interface() -> Vec<Constraint> {
    vec![
        at("spec")
            .exactly_one(&["subnet", "l2Network", "elasticIP"])
            .immutable_if_there("subnet")
            .immutable_if_there("l2Network")
            .immutable_if_there("elasticIP")
            .immutable_if_there("address")
            .immutable_if_there("allocationIdentity")
            .immutable_if_there("retainWhile")
            .rule(
                "!has(self.elasticIP) || self.elasticIP == '' || !has(self.address) || self.address == ''",
                "address is empty with elasticIP",
            )
            .rule(
                "!has(self.elasticIP) || self.elasticIP == '' || !has(self.securityGroups) || self.securityGroups.size() == 0",
                "securityGroups is empty with elasticIP",
            ),
        at("spec.podRef").immutable(),
        at("spec.podRef.uid").uid(),
        at("spec.podRef.name").name(),
        at("spec.podRef.interface").length(1, 8).pattern(INTERFACE),
        at("spec.nodeName").name().immutable(),
        at("spec.subnet").length(0, NAME),
        at("spec.l2Network").length(0, NAME),
        at("spec.elasticIP").length(0, NAME),
        at("spec.address").address(),
        at("spec.securityGroups").items(0, 2).set(),
        at("spec.securityGroups[]").name(),
        at("spec.allocationIdentity").name().pattern(SUBDOMAIN),
    ]
    .into_iter()
    .chain(object_reference("spec.retainWhile"))
    .chain([conditions()])
    .collect()
}

/// A reference to an object of any kind.
fn object_reference(path: &str) -> Vec<Constraint> {
    let field = |name: &str| at(&format!("{path}.{name}"));
    vec![
        field("apiVersion").length(1, 317),
        field("kind").length(1, 63),
        field("namespace").length(0, 63),
        field("name").name(),
    ]
}

pub(super) fn network_endpoint() -> Vec<Constraint> {
    vec![
        at("spec")
            .exactly_one(&["subnet", "l2Network", "externalNetwork"])
            .rule(
                "self.kind == 'Pod' || !has(self.externalNetwork) || self.externalNetwork == ''",
                "externalNetwork is for kind Pod only",
            )
            .rule("self.kind != 'Pod' || has(self.podRef)", "podRef is needed for kind Pod"),
        at("spec.nodeName").name(),
        at("spec.subnet").length(0, NAME),
        at("spec.l2Network").length(0, NAME),
        at("spec.externalNetwork").length(0, NAME),
        at("spec.address").length(0, CIDR).rule(
            "self == '' || (isCIDR(self) && cidr(self).ip().family() == 4)",
            "is not an IPv4 address with a prefix length; write it as in 10.0.1.20/24",
        ),
        at("spec.macAddress").length(0, 17).pattern(MAC),
        at("spec.attachment.ifindex").at_least(1),
        at("spec.attachment.hostMACAddress").length(0, 17).pattern(MAC),
        at("spec.attachment.containerID").length(0, NAME),
        at("spec.podRef.name").name(),
        at("spec.podRef.interface").length(1, 15),
        at("spec.podRef.uid").uid(),
        conditions(),
    ]
}

pub(super) fn service_nat_attachment() -> Vec<Constraint> {
    vec![at("spec.nodeName").name().immutable(), at("spec.vpc").name().immutable(), conditions()]
}

pub(super) fn vpc_endpoint() -> Vec<Constraint> {
    vec![
        at("spec.vpc").name().immutable(),
        at("spec.service.namespace").length(1, 63),
        at("spec.service.name").length(1, 63),
        conditions(),
    ]
}

pub(super) fn allocation_pool() -> Vec<Constraint> {
    vec![
        at("spec")
            .rule("self.type != 'number' || has(self.number)", "number is needed with type number")
            .rule("self.type != 'ip' || has(self.ip)", "ip is needed with type ip")
            .immutable_if_there("number"),
        at("spec.type").immutable(),
        at("spec.strategy").immutable(),
        at("spec.number").rule("self.min <= self.max", "min is greater than max"),
        at("spec.number.min").at_least(1),
        at("spec.number.max").at_least(1),
        at("spec.ip.cidrs").items(0, CIDRS),
        at("spec.ip.cidrs[]").prefix(),
        at("spec.ip.ranges").items(0, 64),
        at("spec.ip.ranges[].start").length(1, ADDRESS).rule("isIP(self) && ip(self).family() == 4", IPV4),
        at("spec.ip.ranges[].end").length(1, ADDRESS).rule("isIP(self) && ip(self).family() == 4", IPV4),
        at("spec.ip.excluded").items(0, 1024),
        at("spec.ip.excluded[]").length(1, ADDRESS).rule("isIP(self) && ip(self).family() == 4", IPV4),
        conditions(),
    ]
}

pub(super) fn allocation_claim() -> Vec<Constraint> {
    vec![
        at("spec").immutable(),
        at("spec.poolRefs").items(1, CIDRS),
        at("spec.poolRefs[].name").name(),
        at("spec.resourceRef.uid").uid(),
        at("spec.attribute").length(1, NAME),
        at("spec.requestedNumber").at_least(1),
        at("spec.requestedIP").address(),
        at("spec.allocationFilter.cidrs").items(0, CIDRS),
        at("spec.allocationFilter.cidrs[]").prefix(),
        at("spec.releaseAfter").duration(),
        at("spec.reuseKey").name().pattern(SUBDOMAIN),
    ]
    .into_iter()
    .chain(object_reference("spec.resourceRef"))
    .chain(object_reference("spec.retainWhile"))
    .chain([conditions()])
    .collect()
}

pub(super) fn allocation_lease() -> Vec<Constraint> {
    vec![
        at("spec.poolRef").immutable(),
        at("spec.poolRef.name").name(),
        at("spec.value")
            .immutable()
            .rule("has(self.number) != (has(self.ip) && self.ip != '')", "set exactly one of number, ip"),
        at("spec.value.number").at_least(1),
        at("spec.value.ip").address(),
        at("spec.claimRef.name").name(),
        at("spec.claimRef.uid").uid(),
        at("spec.ttlSeconds").at_least(0),
    ]
    .into_iter()
    .chain(object_reference("spec.retainWhile"))
    .chain([conditions()])
    .collect()
}
