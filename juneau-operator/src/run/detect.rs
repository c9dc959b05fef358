//! What is found out about the cluster: ranges of Services and Pods, and the MTU between nodes. A flag wins.

use super::Options;
use crate::plan::{Config, USUAL_SERVICES};
use crate::state::State;
use futures::StreamExt as _;
use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Service};
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::api::{Api, ListParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Where kubeadm keeps what it was told.
const KUBEADM: (&str, &str) = ("kube-system", "kubeadm-config");
/// The API server's own Service.
const KUBERNETES: (&str, &str) = ("default", "kubernetes");
/// The shortest prefix of a Subnet.
const SHORTEST: u8 = 16;
/// The longest.
const LONGEST: u8 = 28;

/// Finds out what the plan goes by. Asks until the server answers.
pub(super) async fn detect(client: &kube::Client, options: &Options) -> Config {
    // What cannot be asked now is asked again: a default that was taken for want of an answer would stay.
    let kubeadm = ask("configmaps", || kubeadm(client)).await;
    let nodes = ask("nodes", || async {
        Api::<Node>::all(client.clone()).list(&ListParams::default()).await.map(|nodes| nodes.items)
    })
    .await;
    let ranges = ask("servicecidrs", || async {
        match Api::<ServiceCIDR>::all(client.clone()).list(&ListParams::default()).await {
            Ok(list) => Ok(list.items.iter().flat_map(of_service).collect::<BTreeSet<_>>()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(BTreeSet::new()),
            Err(error) => Err(error),
        }
    })
    .await;
    let kubernetes = ask("services", || kubernetes(client)).await;
    conclude(options, kubeadm.as_ref(), &nodes, ranges, kubernetes)
}

/// What follows from what was found.
fn conclude(
    options: &Options,
    kubeadm: Option<&Value>,
    nodes: &[Node],
    ranges: BTreeSet<Ipv4Net>,
    kubernetes: Option<Ipv4Addr>,
) -> Config {
    let mut config = Config {
        require_namespace_binding: options.require_namespace_binding,
        node_namespace: Some(options.pod_namespace.clone()),
        ..Config::default()
    };
    config.service_cidrs = match options.service_cluster_ip_range {
        Some(range) => vec![range],
        None if !ranges.is_empty() => ranges.into_iter().collect(),
        None => {
            let told = kubeadm.and_then(|kubeadm| first_range(kubeadm, "serviceSubnet"));
            told.or_else(|| kubernetes.and_then(usual_range)).into_iter().collect()
        }
    };
    // Nodes' podCIDRs are no source: they come some time after the Nodes, and more of them with each Node, so what they have
    // in common depends on the moment; and what Subnet `default` once has, it keeps.
    config.default_subnet_cidr = options
        .default_subnet_cidr
        .or_else(|| kubeadm.and_then(|kubeadm| first_range(kubeadm, "podSubnet")).map(fitting))
        .unwrap_or(config.default_subnet_cidr);
    let outside = |range: &Ipv4Net| !config.default_subnet_cidr.contains(range);
    if let Some(range) = nodes.iter().flat_map(of_pods).find(outside) {
        tracing::info!(
            %range, pods = %config.default_subnet_cidr,
            "a Node's podCIDR is outside the CIDR of a Subnet default that is made now: --default-subnet-cidr wins"
        );
    }
    let internal_ips = nodes
        .iter()
        .flat_map(|node| node.status.iter().flat_map(|status| status.addresses.iter().flatten()))
        .filter(|address| address.type_ == "InternalIP");
    match options.underlay_mtu.or_else(|| mtu(internal_ips.map(|address| &*address.address))) {
        Some(mtu) => config.underlay_mtu = mtu,
        None => tracing::info!(mtu = config.underlay_mtu, "no device here has a Node's InternalIP yet; MTU assumed"),
    }
    tracing::info!(
        services = ?config.service_cidrs, pods = %config.default_subnet_cidr, mtu = config.underlay_mtu, "detected"
    );
    if config.service_cidrs.is_empty() {
        tracing::warn!("the range of Services is not known: give --service-cluster-ip-range");
    }
    config
}

/// Finds the MTU between nodes as soon as a Node has the address of a device here: the operator may be there before
/// Nodes are, and before they have addresses.
pub(super) async fn follow_mtu(state: Arc<State>, config: Arc<watch::Sender<Arc<Config>>>) {
    let mut changes = state.changes();
    loop {
        changes.mark_unchanged();
        if let Some(mtu) = state.read(|view| mtu(view.nodes.values().flat_map(|node| &node.internal_ips))) {
            config.send_if_modified(|config| {
                let changed = config.underlay_mtu != mtu;
                if changed {
                    tracing::info!(mtu, "MTU between nodes found");
                    Arc::make_mut(config).underlay_mtu = mtu;
                }
                changed
            });
            return;
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// Keeps the ranges of Services current, for ever.
pub(super) async fn follow(client: kube::Client, patience: Duration, config: Arc<watch::Sender<Arc<Config>>>) {
    let mut events =
        pin!(watcher::watcher(Api::<ServiceCIDR>::all(client), super::watch::config(patience)).default_backoff());
    let mut ranges: BTreeMap<String, Vec<Ipv4Net>> = BTreeMap::new();
    let mut listed = false;
    while let Some(event) = events.next().await {
        let name = |range: &ServiceCIDR| range.metadata.name.clone().unwrap_or_default();
        match event {
            Ok(watcher::Event::Init) => {
                ranges.clear();
                listed = false;
            }
            Ok(watcher::Event::InitDone) => listed = true,
            Ok(watcher::Event::InitApply(range) | watcher::Event::Apply(range)) => {
                ranges.insert(name(&range), of_service(&range).collect());
            }
            Ok(watcher::Event::Delete(range)) => drop(ranges.remove(&name(&range))),
            Err(error) => {
                tracing::debug!(%error, "watch of ServiceCIDRs");
                // A server without the kind: nothing will ever change.
                if matches!(&error, watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404) {
                    return;
                }
            }
        }
        let all: BTreeSet<Ipv4Net> = ranges.values().flatten().copied().collect();
        if listed && !all.is_empty() {
            config.send_if_modified(|config| {
                let all: Vec<_> = all.into_iter().collect();
                let changed = config.service_cidrs != all;
                if changed {
                    tracing::info!(services = ?all, "ranges of Services changed");
                    Arc::make_mut(config).service_cidrs = all;
                }
                changed
            });
        }
    }
}

async fn ask<T, F: Future<Output = kube::Result<T>>>(what: &str, question: impl Fn() -> F) -> T {
    let mut pause = Duration::from_millis(200);
    loop {
        match question().await {
            Ok(answer) => return answer,
            Err(kube::Error::Api(status)) if status.code == 403 => tracing::error!(
                "may not list {what}: is it in ClusterRole juneau-operator, as in deploy/? The server says: {}",
                status.message
            ),
            Err(error) => tracing::warn!(%error, "cannot list {what}"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(10));
    }
}

async fn kubeadm(client: &kube::Client) -> kube::Result<Option<Value>> {
    let map = match Api::<ConfigMap>::namespaced(client.clone(), KUBEADM.0).get_opt(KUBEADM.1).await {
        // Who does not let us read it has no kubeadm, or does not want us to go by it.
        Err(kube::Error::Api(status)) if status.code == 403 => None,
        other => other?,
    };
    let told = map.and_then(|map| map.data).and_then(|mut data| data.remove("ClusterConfiguration"));
    Ok(told.and_then(|text| {
        let read = serde_saphyr::from_str(&text);
        read.inspect_err(|error| tracing::warn!(%error, "kubeadm-config cannot be read")).ok()
    }))
}

/// The first IPv4 range of a member of kubeadm's `networking`.
fn first_range(kubeadm: &Value, member: &str) -> Option<Ipv4Net> {
    let text = kubeadm.pointer("/networking")?.get(member)?.as_str()?;
    text.split(',').find_map(|range| range.trim().parse().ok()).map(|range: Ipv4Net| range.trunc())
}

fn of_service(range: &ServiceCIDR) -> impl Iterator<Item = Ipv4Net> + '_ {
    range.spec.iter().flat_map(|spec| spec.cidrs.iter().flatten()).filter_map(|text| text.parse().ok())
}

fn of_pods(node: &Node) -> impl Iterator<Item = Ipv4Net> + '_ {
    let spec = node.spec.iter();
    spec.flat_map(|spec| spec.pod_cidrs.iter().flatten().chain(&spec.pod_cidr)).filter_map(|text| text.parse().ok())
}

/// As a Subnet may be: at most a /16.
fn fitting(range: Ipv4Net) -> Ipv4Net {
    let length = range.prefix_len().clamp(SHORTEST, LONGEST);
    Ipv4Net::new(range.network(), length).map_or(range, |net| net.trunc())
}

/// The IPv4 address of the API server's own Service. What a Pod is told of by its environment may be a node's address
/// instead, since that is how the operator is told to reach the API server without Services.
async fn kubernetes(client: &kube::Client) -> kube::Result<Option<Ipv4Addr>> {
    let service = match Api::<Service>::namespaced(client.clone(), KUBERNETES.0).get_opt(KUBERNETES.1).await {
        Err(kube::Error::Api(status)) if status.code == 403 => None,
        other => other?,
    };
    let addresses =
        service.and_then(|service| service.spec).map(|spec| spec.cluster_ips.or(spec.cluster_ip.map(|ip| vec![ip])));
    Ok(addresses.flatten().into_iter().flatten().find_map(|address| address.parse().ok()))
}

/// The usual range around the address of a Service.
fn usual_range(address: Ipv4Addr) -> Option<Ipv4Net> {
    let range =
        if USUAL_SERVICES.contains(&address) { USUAL_SERVICES } else { Ipv4Net::new(address, 16).ok()?.trunc() };
    tracing::warn!(%range, "the range of Services is guessed: give --service-cluster-ip-range if it is another");
    Some(range)
}

/// The MTU of the device here that has any of Nodes' InternalIPs.
fn mtu(internal_ips: impl IntoIterator<Item = impl AsRef<str>>) -> Option<u32> {
    let internal: BTreeSet<IpAddr> =
        internal_ips.into_iter().filter_map(|address| address.as_ref().parse().ok()).collect();
    if internal.is_empty() {
        return None;
    }
    let device = nix::ifaddrs::getifaddrs().ok()?.find(|device| {
        let address = device.address.as_ref();
        let v4 = address.and_then(|address| address.as_sockaddr_in()).map(|address| IpAddr::V4(address.ip()));
        let v6 = address.and_then(|address| address.as_sockaddr_in6()).map(|address| IpAddr::V6(address.ip()));
        v4.or(v6).is_some_and(|address| internal.contains(&address))
    })?;
    let text = std::fs::read_to_string(format!("/sys/class/net/{}/mtu", device.interface_name)).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Event;
    use crate::view::{Kind, Object};

    fn net(text: &str) -> Ipv4Net {
        text.parse().unwrap()
    }

    fn options(flags: &[&str]) -> Options {
        #[derive(clap::Parser)]
        struct Arguments {
            #[command(flatten)]
            options: Options,
        }
        let arguments = ["juneau-operator"].into_iter().chain(flags.iter().copied());
        <Arguments as clap::Parser>::parse_from(arguments).options
    }

    fn nodes(ranges: &[&str]) -> Vec<Node> {
        let node = |range: &&str| {
            let spec = if range.is_empty() { serde_json::json!({}) } else { serde_json::json!({"podCIDR": range}) };
            serde_json::from_value(serde_json::json!({"metadata": {"name": "n"}, "spec": spec})).unwrap()
        };
        ranges.iter().map(node).collect()
    }

    /// The CIDR of the Subnet that is made first.
    fn bootstrapped(flags: &[&str], kubeadm: Option<&str>, ranges: &[&str]) -> String {
        let kubeadm = kubeadm
            .map(|range| serde_json::json!({"networking": {"podSubnet": range, "serviceSubnet": "10.96.0.0/12"}}));
        let config = conclude(&options(flags), kubeadm.as_ref(), &nodes(ranges), BTreeSet::new(), None);
        let now = k8s_openapi::jiff::Timestamp::from_second(1_800_000_000).unwrap();
        let mut objects = crate::sink::Objects::new();
        for _ in 0..4 {
            for change in crate::plan::plan(objects.view(), &config, now).changes {
                objects.apply(&change, now).unwrap();
            }
        }
        objects.view().subnets["default"].spec.cidr.clone()
    }

    #[test]
    fn the_default_subnet_is_the_same_whatever_nodes_there_are_yet() {
        let moments: [&[&str]; 5] =
            [&[], &[""], &["", "10.244.1.0/24"], &["10.244.0.0/24"], &["10.244.0.0/24", "10.244.9.0/24"]];
        for ranges in moments {
            assert_eq!(bootstrapped(&[], None, ranges), "10.16.0.0/16", "{ranges:?}");
            assert_eq!(bootstrapped(&[], Some("10.7.0.0/16"), ranges), "10.7.0.0/16", "{ranges:?}");
            let flags = ["--default-subnet-cidr=10.9.0.0/20"];
            assert_eq!(bootstrapped(&flags, Some("10.7.0.0/16"), ranges), "10.9.0.0/20", "{ranges:?}");
        }
    }

    #[test]
    fn the_range_of_services_is_what_is_told_else_the_usual_one_around_the_api_server_s() {
        let concluded = |flags: &[&str], kubeadm: Option<&str>, ranges: &[&str], kubernetes: Option<&str>| {
            let kubeadm = kubeadm.map(|range| serde_json::json!({"networking": {"serviceSubnet": range}}));
            let ranges = ranges.iter().map(|range| net(range)).collect();
            let kubernetes = kubernetes.map(|address| address.parse().unwrap());
            conclude(&options(flags), kubeadm.as_ref(), &[], ranges, kubernetes).service_cidrs
        };
        assert_eq!(concluded(&[], None, &[], None), []);
        assert_eq!(concluded(&[], None, &[], Some("10.96.0.1")), [net("10.96.0.0/12")]);
        assert_eq!(concluded(&[], None, &[], Some("172.20.0.1")), [net("172.20.0.0/16")]);
        let told = Some("10.100.0.0/16");
        assert_eq!(concluded(&[], told, &[], Some("10.96.0.1")), [net("10.100.0.0/16")]);
        assert_eq!(concluded(&[], told, &["10.101.0.0/16"], Some("10.96.0.1")), [net("10.101.0.0/16")]);
        let flags = ["--service-cluster-ip-range=10.102.0.0/16"];
        assert_eq!(concluded(&flags, told, &["10.101.0.0/16"], Some("10.96.0.1")), [net("10.102.0.0/16")]);
    }

    #[tokio::test]
    async fn the_mtu_is_found_when_a_node_has_its_address() {
        let state = Arc::new(State::new([Kind::Node]));
        let (sender, mut config) = watch::channel(Arc::new(Config { underlay_mtu: 1, ..Config::default() }));
        let follower = tokio::spawn(follow_mtu(Arc::clone(&state), Arc::new(sender)));
        let node = |addresses: Value| {
            let node = serde_json::json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
                "status": {"addresses": addresses}});
            Event::Found(Object::from_json(Kind::Node, node).unwrap())
        };
        state.handle(node(serde_json::json!([])));
        state.handle(node(serde_json::json!([{"type": "InternalIP", "address": "192.0.2.77"}])));
        tokio::task::yield_now().await;
        assert_eq!(config.borrow().underlay_mtu, 1);
        // The loopback device has this address everywhere.
        state.handle(node(serde_json::json!([{"type": "InternalIP", "address": "127.0.0.1"}])));
        config.changed().await.unwrap();
        let text = std::fs::read_to_string("/sys/class/net/lo/mtu").unwrap();
        assert_eq!(config.borrow().underlay_mtu.to_string(), text.trim());
        follower.await.unwrap();
    }

    #[test]
    fn a_range_of_pods_is_made_to_fit_a_subnet() {
        assert_eq!(fitting(net("10.0.0.0/8")), net("10.0.0.0/16"));
        assert_eq!(fitting(net("10.16.0.0/18")), net("10.16.0.0/18"));
        assert_eq!(fitting(net("10.16.0.0/30")), net("10.16.0.0/28"));
    }

    #[test]
    fn kubeadm_may_have_two_families() {
        let told: Value =
            serde_saphyr::from_str("networking:\n  podSubnet: fd00::/48, 10.7.0.0/16\n  serviceSubnet: 10.96.0.0/12\n")
                .unwrap();
        assert_eq!(first_range(&told, "podSubnet"), Some(net("10.7.0.0/16")));
        assert_eq!(first_range(&told, "serviceSubnet"), Some(net("10.96.0.0/12")));
        assert_eq!(first_range(&told, "dnsDomain"), None);
    }
}
