//! What an agent is told at its start.

use clap::{Args, ValueEnum};
use ipnet::Ipv4Net;
use juneau_bpf::MapSizes;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The agent's socket, unless told otherwise.
pub const SOCKET: &str = "/run/juneau/agent.sock";
/// The metrics' socket, unless told otherwise.
pub const METRICS_SOCKET: &str = "/run/juneau/metrics.sock";
/// Directory of the agent's lock, unless told otherwise.
pub const STATE_DIR: &str = "/run/juneau";
/// Where programs and maps are pinned, unless told otherwise.
pub const PIN_DIR: &str = "/sys/fs/bpf/juneau";

/// Options of the daemon.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// This node's name, as in its Node object.
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    pub node: String,
    /// Where objects are read.
    #[command(flatten)]
    pub objects: Objects,
    /// VPCs without spec.allowedNamespaces are open to no Namespace, as the operator has it when it is told the same.
    #[arg(long)]
    pub require_namespace_binding: bool,
    /// Unix socket for attaching Pods and for the debug client; root only.
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    pub socket: PathBuf,
    /// Unix socket that answers an HTTP GET with metrics in OpenMetrics.
    #[arg(long, value_name = "PATH", default_value = METRICS_SOCKET)]
    pub metrics_socket: PathBuf,
    /// Directory for the agent's lock. One agent a directory, one directory a node.
    #[arg(long, value_name = "DIR", default_value = STATE_DIR)]
    pub state_dir: PathBuf,
    /// Directory of a bpffs where programs and maps are pinned, so that they outlive the agent.
    #[arg(long, value_name = "DIR", default_value = PIN_DIR)]
    pub pin_dir: PathBuf,
    /// Device that carries the overlay. Without it: the one that has the Node's InternalIP.
    #[arg(long, value_name = "IFNAME")]
    pub underlay: Option<String>,
    /// UDP port of the overlay; the same on every node.
    #[arg(long, value_name = "PORT", default_value_t = 4789)]
    pub vxlan_port: u16,
    /// Directory of the cgroup whose sockets may not write to the overlay's port. Without it: the root of the cgroup2
    /// mount.
    #[arg(long, value_name = "DIR")]
    pub cgroup: Option<PathBuf>,
    /// Directory of the kernel's settings. In a container, where /proc/sys cannot be written, a mount of the node's.
    #[arg(long, value_name = "DIR", default_value = crate::net::SYSCTL_DIR)]
    pub sysctl_dir: PathBuf,
    /// Seconds between two comparisons of what the kernel holds with what it should hold.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub resync: u64,
    /// Seconds after which the interface of a Pod that no object speaks of is removed; until then it is closed. Also
    /// how long the objects of a VPC stay in memory when nothing on this node is in it any more.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub stale_after: u64,
    /// Where probes are executed for the kubelet of this node: ADDRESS:PORT, as the webhook writes it into Pods; 0:
    /// nowhere. Only connections from a loopback address are answered.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9911", value_parser = probe_address)]
    pub probe_bind_address: ProbeAddress,
    /// Directory where the container runtime puts the network namespaces of Pods. They are entered for probes.
    #[arg(long, value_name = "DIR", default_value = "/run/netns")]
    pub netns_dir: PathBuf,
    /// How processes of the node itself reach Services of Vpc `default`.
    #[arg(long, value_enum, value_name = "HOW", default_value_t = HostServices::Route)]
    pub host_services: HostServices,
    /// The range of Services' addresses, for --host-services=route. Without it: what the operator routes to Services in
    /// the node's Subnet; empty: none.
    #[arg(long, value_name = "CIDR", value_parser = service_range)]
    pub service_cluster_ip_range: Option<ServiceRange>,
    /// Where the CNI plugin goes.
    #[command(flatten)]
    pub cni: Cni,
    /// Elements of a map that does not exist yet, as in `jn_routes=100000`; may be given several times.
    #[arg(long = "map-size", value_name = "MAP=ELEMENTS", value_parser = map_size)]
    pub map_sizes: Vec<(String, u32)>,
}

/// Where probes are executed, if anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbeAddress(pub Option<SocketAddr>);

fn probe_address(text: &str) -> Result<ProbeAddress, String> {
    if text == "0" {
        return Ok(ProbeAddress(None));
    }
    match text.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_loopback() => Ok(ProbeAddress(Some(address))),
        Ok(address) => Err(format!("{} is no loopback address: others than the node could ask", address.ip())),
        Err(_) => Err("write ADDRESS:PORT, as in 127.0.0.1:9911, or 0".to_owned()),
    }
}

/// How processes of the node itself reach Services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum HostServices {
    /// By a route to the node port.
    Route,
    /// As somebody else has it, kube-proxy for one.
    Off,
}

/// A range of Services' addresses; none if it was given as an empty text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceRange(pub Option<Ipv4Net>);

fn service_range(text: &str) -> Result<ServiceRange, String> {
    if text.is_empty() {
        return Ok(ServiceRange(None));
    }
    match text.parse::<Ipv4Net>() {
        Ok(range) if range.trunc() == range => Ok(ServiceRange(Some(range))),
        Ok(range) => Err(format!("{text} has host bits set: write {}", range.trunc())),
        Err(_) => Err("write an IPv4 prefix, as in 10.96.0.0/12, or nothing".to_owned()),
    }
}

/// Where the CNI plugin goes.
#[derive(Debug, Clone, Args)]
pub struct Cni {
    /// Directory where the container runtime looks for CNI plugins, usually /opt/cni/bin: the plugin is put there as
    /// `juneau`. Without it the plugin is not installed.
    #[arg(long, value_name = "DIR")]
    pub cni_bin_dir: Option<PathBuf>,
    /// Directory where the container runtime looks for CNI configurations, usually /etc/cni/net.d: once this node is
    /// ready, 05-juneau.conflist is put there. Without it no configuration is installed.
    #[arg(long, value_name = "DIR")]
    pub cni_conf_dir: Option<PathBuf>,
    /// The plugin to install. Without it: `juneau-cni` beside this program.
    #[arg(long, value_name = "PATH")]
    pub cni_plugin: Option<PathBuf>,
    /// Version of the CNI specification that the configuration names. Take 1.1.0 (STATUS, GC) only with containerd 2
    /// or newer, or CRI-O 1.32 or newer: what is older refuses its results.
    #[arg(long, value_enum, value_name = "VERSION", default_value_t = CniVersion::V1_0_0)]
    pub cni_version: CniVersion,
}

/// Versions of the CNI specification that a configuration can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CniVersion {
    /// Known to every runtime.
    #[value(name = "1.0.0")]
    V1_0_0,
    /// With STATUS and GC.
    #[value(name = "1.1.0")]
    V1_1_0,
}

impl CniVersion {
    /// As `cniVersion` has it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V1_0_0 => "1.0.0",
            Self::V1_1_0 => "1.1.0",
        }
    }
}

/// Where objects are read: one of three.
#[derive(Debug, Clone, Args)]
#[group(required = true, multiple = false)]
pub struct Objects {
    /// Directory of manifests to read objects from; watched for changes.
    #[arg(long, value_name = "DIR", alias = "directory")]
    pub manifests: Option<PathBuf>,
    /// File that says where the API server is and who this agent is there.
    #[arg(long, value_name = "PATH")]
    pub kubeconfig: Option<PathBuf>,
    /// The API server of the cluster that this agent is a Pod of, by its service account.
    #[arg(long)]
    pub in_cluster: bool,
}

/// Names that `--map-size` takes.
const SIZED: [&str; 14] = [
    "jn_interfaces_high",
    "jn_endpoints",
    "jn_macs",
    "jn_segments",
    "jn_routes",
    "jn_vteps",
    "jn_policies",
    "jn_frontends",
    "jn_slots",
    "jn_backends",
    "jn_flows",
    "jn_fragments",
    "jn_pmtu",
    "jn_affinity",
];

fn map_size(text: &str) -> Result<(String, u32), String> {
    let (map, size) = text.split_once('=').ok_or("write MAP=ELEMENTS")?;
    if !SIZED.contains(&map) {
        return Err(format!("sizes can be given for {}", SIZED.join(", ")));
    }
    match size.parse() {
        Ok(size) if size > 0 => Ok((map.to_owned(), size)),
        _ => Err(format!("{size} is not a number of elements")),
    }
}

impl Options {
    /// Sizes of maps that do not exist yet.
    #[must_use]
    pub fn sizes(&self) -> MapSizes {
        let mut sizes = MapSizes::default();
        for (map, size) in &self.map_sizes {
            let field = match map.as_str() {
                "jn_interfaces_high" => &mut sizes.interfaces_high,
                "jn_endpoints" => &mut sizes.endpoints,
                "jn_macs" => &mut sizes.macs,
                "jn_segments" => &mut sizes.segments,
                "jn_routes" => &mut sizes.routes,
                "jn_vteps" => &mut sizes.vteps,
                "jn_policies" => &mut sizes.policies,
                "jn_frontends" => &mut sizes.frontends,
                "jn_slots" => &mut sizes.slots,
                "jn_backends" => &mut sizes.backends,
                "jn_flows" => &mut sizes.flows,
                "jn_fragments" => &mut sizes.fragments,
                "jn_affinity" => &mut sizes.affinities,
                _ => &mut sizes.path_mtus,
            };
            *field = Some(*size);
        }
        sizes
    }
}
