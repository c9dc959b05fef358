//! What the operator is told at its start.

use crate::clock::Clock;
use crate::http::{address, optional_address};
use clap::Args;
use ipnet::Ipv4Net;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Flags that mean something at an API server only.
const AT_A_SERVER: [&str; 13] = [
    "kubeconfig",
    "leader_elect",
    "lease_duration",
    "api_server_patience",
    "enable_http2",
    "webhook_bind_address",
    "webhook_hosts",
    "webhook_ca_secret_name",
    "webhook_configuration",
    "enable_probe_rewrite",
    "health_probe_bind_address",
    "metrics_bind_address",
    "metrics_secure",
];

/// Options of `juneau-operator run`.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Plan on a directory of manifests instead of an API server; what is planned is written to DIR/.planned. There is no
    /// election, no webhook and nothing to ask for health or metrics there, and nothing is detected: what flags do not
    /// say is assumed.
    #[arg(long, value_name = "DIR", conflicts_with_all = AT_A_SERVER)]
    pub directory: Option<PathBuf>,
    /// Kubeconfig file. Without it: $KUBECONFIG, ~/.kube/config, or the ServiceAccount of the Pod.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of this program: where its Lease and the webhook's certificate are.
    #[arg(long, value_name = "NAMESPACE", env = "POD_NAMESPACE", default_value = "juneau-system")]
    pub pod_namespace: String,
    /// Name of the Pod that this is, in Events and in the Lease, where a random part is added. A process that finds the
    /// Lease with an earlier one of the same Pod takes it over at once: never give two that run the same name. Without
    /// it: juneau-operator, and every holder is waited for.
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    pub pod_name: Option<String>,

    /// CIDR of Subnet `default`, used only when that Subnet does not exist. Without it: kubeadm's podSubnet, or
    /// 10.16.0.0/16.
    #[arg(long, value_name = "CIDR", value_parser = cidr)]
    pub default_subnet_cidr: Option<Ipv4Net>,
    /// Range of Service addresses, for an API server that has no ServiceCIDR objects. On a directory, without it:
    /// 10.96.0.0/12.
    #[arg(long, value_name = "CIDR", value_parser = cidr)]
    pub service_cluster_ip_range: Option<Ipv4Net>,
    /// MTU of the network between the nodes, in bytes. Without it: that of this node's device with a Node's InternalIP.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(576..=65535))]
    pub underlay_mtu: Option<u32>,
    /// A Vpc without spec.allowedNamespaces lets no Namespace in, rather than all.
    #[arg(long)]
    pub require_namespace_binding: bool,

    /// Write only while holding the Lease. `false` only where no other operator runs, ever.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true")]
    pub leader_elect: bool,
    /// Another replica takes over when it has seen no renewal of the Lease for this long. The holder itself stops at
    /// four fifths of it. The same for all replicas.
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u16).range(3..=3600))]
    pub lease_duration: u16,
    /// A connection to the API server on which nothing came for this long while something was awaited is given up.
    /// Watches are begun anew after four fifths of it.
    #[arg(long, value_name = "SECONDS", default_value_t = 75, value_parser = clap::value_parser!(u16).range(5..=3600))]
    pub api_server_patience: u16,

    /// Where the webhook listens: ADDRESS:PORT or :PORT. The API server asks it by the URL in the webhook configuration,
    /// which as delivered names 127.0.0.1: each API server asks the replica beside it.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9443", value_parser = address)]
    pub webhook_bind_address: SocketAddr,
    /// Speak HTTP/2, too, for the webhook and for metrics. Without it, HTTP/1.1 only, which is all that an API server needs
    /// of a webhook.
    #[arg(long, value_name = "BOOL", default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true")]
    pub enable_http2: bool,
    /// Further name or address under which API servers reach the webhook; may be given several times.
    #[arg(long = "webhook-host", value_name = "HOST")]
    pub webhook_hosts: Vec<String>,
    /// Secret with the webhook's certificate, made when it is missing.
    #[arg(long, value_name = "NAME", default_value = crate::certificates::SECRET)]
    pub webhook_ca_secret_name: String,
    /// ValidatingWebhookConfiguration that is told whom to trust; with --enable-probe-rewrite, the
    /// MutatingWebhookConfiguration of the same name as well.
    #[arg(long, value_name = "NAME", default_value = crate::rights::WEBHOOK)]
    pub webhook_configuration: String,
    /// Answer at /mutate--v1-pod-probes: probes of Pods that the node cannot reach are rewritten so that the node's agent
    /// executes them. Without it, take the MutatingWebhookConfiguration away: nobody answers what it asks.
    #[arg(long, value_name = "BOOL", default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true")]
    pub enable_probe_rewrite: bool,

    /// What counts as the time of day.
    #[arg(skip)]
    pub clock: Clock,

    /// Where /healthz and /readyz are: ADDRESS:PORT or :PORT.
    #[arg(long, value_name = "ADDRESS", default_value = ":8081", value_parser = address)]
    pub health_probe_bind_address: SocketAddr,
    /// Where /metrics is: ADDRESS:PORT or :PORT; 0: nowhere.
    #[arg(long, value_name = "ADDRESS", default_value = "0", value_parser = Bind::read)]
    pub metrics_bind_address: Bind,
    /// Serve /metrics over TLS with the webhook's certificate, and only to bearers of a token whose holder may `get` the
    /// path /metrics, as the API server says. `false`: plain, to anybody who reaches it.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true")]
    pub metrics_secure: bool,
}

impl Options {
    /// What this replica is called.
    #[must_use]
    pub fn replica(&self) -> &str {
        self.pod_name.as_deref().unwrap_or("juneau-operator")
    }
}

/// An address to listen at, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bind(pub Option<SocketAddr>);

impl Bind {
    fn read(text: &str) -> Result<Self, String> {
        optional_address(text).map(Self)
    }
}

fn cidr(text: &str) -> Result<Ipv4Net, String> {
    let net: Ipv4Net = text.parse().map_err(|_| format!("{text} is not an IPv4 prefix such as 10.16.0.0/16"))?;
    if net.trunc() == net { Ok(net) } else { Err(format!("{text} has host bits; write {}", net.trunc())) }
}
