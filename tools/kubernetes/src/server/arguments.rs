//! The command lines of the programs.

use super::{Network, Options, PORT};
use crate::pki::Pki;
use crate::programs::{Program, Programs};
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

/// A program with its command line.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) name: &'static str,
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<OsString>,
    pub(super) notifies: bool,
}

/// Collects arguments of the form `--name=value`.
#[derive(Default)]
struct Arguments(Vec<OsString>);

impl Arguments {
    fn with(mut self, name: &str, value: impl Into<OsString>) -> Self {
        let mut argument = OsString::from(format!("--{name}="));
        argument.push(value.into());
        self.0.push(argument);
        self
    }
}

/// The first address of the Services' range: that of the API server's own Service.
pub(super) fn service_address(options: &Options) -> Vec<IpAddr> {
    let network = options.service_cidr.split('/').next().and_then(|text| text.parse::<Ipv4Addr>().ok());
    network.map(|network| IpAddr::V4(Ipv4Addr::from(u32::from(network) + 1))).into_iter().collect()
}

/// What to start, in order.
pub(super) fn all(dir: &Path, programs: &Programs, pki: &Pki, address: Ipv4Addr, options: &Options) -> Vec<Wanted> {
    // In a namespace of its own, etcd is nobody else's business.
    let etcd_address = match options.network {
        Network::Loopback => address,
        Network::Namespace { .. } => Ipv4Addr::LOCALHOST,
    };
    let etcd = format!("http://{etcd_address}:2379");
    let mut wanted = vec![
        Wanted {
            name: "etcd",
            program: programs.etcd().to_owned(),
            arguments: etcd_arguments(dir, &etcd, &format!("http://{etcd_address}:2380")).0,
            notifies: true,
        },
        Wanted {
            name: Program::ApiServer.name(),
            program: programs.path(Program::ApiServer),
            arguments: api_server_arguments(dir, pki, address, &etcd, options).0,
            notifies: true,
        },
    ];
    if options.controllers {
        let manager = controller_manager_arguments(dir, pki, address, options);
        let scheduler = client_arguments(dir, Program::Scheduler, address).with("leader-elect", "false");
        for (program, arguments) in [(Program::ControllerManager, manager), (Program::Scheduler, scheduler)] {
            let (name, program) = (program.name(), programs.path(program));
            wanted.push(Wanted { name, program, arguments: arguments.0, notifies: false });
        }
    }
    wanted
}

fn etcd_arguments(dir: &Path, client: &str, peer: &str) -> Arguments {
    Arguments::default()
        .with("data-dir", dir.join("etcd"))
        .with("listen-client-urls", client)
        .with("advertise-client-urls", client)
        .with("listen-peer-urls", peer)
        .with("initial-advertise-peer-urls", peer)
        .with("initial-cluster", format!("default={peer}"))
}

fn api_server_arguments(dir: &Path, pki: &Pki, address: Ipv4Addr, etcd: &str, options: &Options) -> Arguments {
    let keys = dir.join("pki");
    let issuer = "https://kubernetes.default.svc";
    let mut arguments = Arguments::default()
        .with("etcd-servers", etcd)
        .with("bind-address", address.to_string())
        .with("advertise-address", address.to_string())
        .with("secure-port", PORT.to_string())
        .with("tls-cert-file", keys.join("apiserver.crt"))
        .with("tls-private-key-file", keys.join("apiserver.key"))
        .with("client-ca-file", pki.authority())
        .with("authorization-mode", "Node,RBAC")
        .with("enable-admission-plugins", "NodeRestriction")
        .with("allow-privileged", "true")
        .with("service-cluster-ip-range", &options.service_cidr)
        .with("service-account-issuer", issuer)
        .with("service-account-key-file", pki.token_public_key())
        .with("service-account-signing-key-file", pki.token_key())
        .with("requestheader-client-ca-file", pki.authority())
        .with("requestheader-allowed-names", "front")
        .with("requestheader-username-headers", "X-Remote-User")
        .with("requestheader-group-headers", "X-Remote-Group")
        .with("requestheader-extra-headers-prefix", "X-Remote-Extra-")
        .with("proxy-client-cert-file", keys.join("front.crt"))
        .with("proxy-client-key-file", keys.join("front.key"))
        // Both know whom they speak to: for logs, exec and port-forward.
        .with("kubelet-certificate-authority", pki.authority())
        .with("kubelet-client-certificate", keys.join("kubelet-client.crt"))
        .with("kubelet-client-key", keys.join("kubelet-client.key"))
        .with("kubelet-preferred-address-types", "InternalIP")
        .with("audit-policy-file", dir.join("audit-policy.json"))
        .with("audit-log-path", dir.join("audit.log"))
        .with("audit-log-mode", "blocking")
        .with("profiling", "false");
    if options.network == Network::Loopback {
        // A loopback address is no endpoint of a Service.
        arguments = arguments.with("endpoint-reconciler-type", "none");
    }
    arguments.0.extend(options.api_server.iter().map(OsString::from));
    arguments
}

/// What the clients of the API server have in common.
fn client_arguments(dir: &Path, program: Program, address: Ipv4Addr) -> Arguments {
    let config = dir.join(format!("{}.inner.kubeconfig", program.name()));
    Arguments::default()
        .with("kubeconfig", &config)
        .with("authentication-kubeconfig", &config)
        .with("authorization-kubeconfig", &config)
        .with("bind-address", address.to_string())
}

fn controller_manager_arguments(dir: &Path, pki: &Pki, address: Ipv4Addr, options: &Options) -> Arguments {
    client_arguments(dir, Program::ControllerManager, address)
        .with("service-account-private-key-file", pki.token_key())
        .with("root-ca-file", pki.authority())
        .with("cluster-signing-cert-file", pki.authority())
        .with("cluster-signing-key-file", pki.authority_key())
        .with("use-service-account-credentials", "true")
        .with("leader-elect", "false")
        // Made where it is missing, which would be below /usr.
        .with("flex-volume-plugin-dir", dir.join("volume-plugins"))
        .with("allocate-node-cidrs", "true")
        .with("cluster-cidr", &options.pod_cidr)
        .with("service-cluster-ip-range", &options.service_cidr)
        // A node that is lost shows within 20 seconds.
        .with("node-monitor-period", "2s")
        .with("node-monitor-grace-period", "16s")
}
