//! What a plan is told beside the objects.

use core::time::Duration;
use ipnet::Ipv4Net;

/// The range of Services of clusters that were not told another one.
pub const USUAL_SERVICES: Ipv4Net = Ipv4Net::new_assert(core::net::Ipv4Addr::new(10, 96, 0, 0), 12);

/// What a plan is told beside the objects: flags, and what was detected of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The prefix of Subnet `default`, used when that Subnet does not exist.
    pub default_subnet_cidr: Ipv4Net,
    /// The prefixes of Services (ServiceCIDR objects, or the address of the Service `kubernetes`). Empty: not known.
    pub service_cidrs: Vec<Ipv4Net>,
    /// The MTU of the nodes' underlay, in bytes. A Subnet's is less by what the encapsulation needs.
    pub underlay_mtu: u32,
    /// A Vpc without `allowedNamespaces` lets nobody in, rather than everybody.
    pub require_namespace_binding: bool,
    /// The namespace of the nodes' own endpoints; without it nodes have none.
    pub node_namespace: Option<String>,
    /// How long an address without a stable identity rests after its Pod is gone, unless the Subnet says otherwise.
    pub quarantine: Duration,
    /// How long an address with a stable identity is kept for its owner's return.
    pub retain: Duration,
    /// How long a new Vpc waits for its user's own main RouteTable before one is made.
    pub main_table_grace: Duration,
    /// How old an object without its owner must be to be left over. Watches of two kinds are not in step, so that a new
    /// object may be seen before its owner is.
    pub settle: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            default_subnet_cidr: Ipv4Net::new_assert(core::net::Ipv4Addr::new(10, 16, 0, 0), 16),
            service_cidrs: Vec::new(),
            underlay_mtu: 1500,
            require_namespace_binding: false,
            node_namespace: None,
            quarantine: Duration::from_secs(60),
            retain: Duration::from_secs(3600),
            main_table_grace: Duration::from_secs(1),
            settle: Duration::from_secs(10),
        }
    }
}
