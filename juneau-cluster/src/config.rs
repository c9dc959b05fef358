//! What containerd and kubelet are told. Pure.
//!
//! Everything is at the path where it is on any node, because each node has its own mounts.

use juneau_controlplane::NodeIdentity;
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::path::Path;

/// The image that holds a Pod's namespaces. No registry is asked for it: it is imported.
pub const PAUSE: &str = "localhost/juneau-pause:1";

/// Where CNI plugins are.
pub const CNI_BIN: &str = "/opt/cni/bin";

/// Where CNI configurations are.
pub const CNI_CONF: &str = "/etc/cni/net.d";

/// Where containerd answers.
pub const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";

/// The address of the Service for names, and the domain of a cluster: what Pods are told.
const DNS: (&str, &str) = ("10.96.0.10", "cluster.local");

/// The configuration of containerd, with `runc` as what makes containers. Version 2 of the format is containerd 1.6's;
/// later releases take it as well.
#[must_use]
pub fn containerd(runc: &Path) -> String {
    // A string of JSON is one of TOML, too.
    let runc = json!(runc);
    format!(
        r#"version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
# Snapshotters that need more than a kernel.
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]

[grpc]
  address = "{CONTAINERD_SOCKET}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  # A node's /sys does not show the machine's profiles.
  disable_apparmor = true
  # Without the capability for it, no score below this process's own can be set; then no Pod would start.
  restrict_oom_score_adj = true

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{CNI_BIN}"
    conf_dir = "{CNI_CONF}"

  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"

    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"

      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = {runc}
        SystemdCgroup = false
"#
    )
}

/// The configuration of a kubelet: `kubelet.config.k8s.io/v1beta1`.
#[must_use]
pub fn kubelet(identity: &NodeIdentity) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        // Who asks must be somebody, and may only what the API server says that it may.
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true },
            "x509": { "clientCAFile": identity.authority },
        },
        "authorization": { "mode": "Webhook" },
        "tlsCertFile": identity.certificate,
        "tlsPrivateKeyFile": identity.key,
        "containerRuntimeEndpoint": format!("unix://{CONTAINERD_SOCKET}"),
        "cgroupDriver": "cgroupfs",
        // Machines with control groups of version 1 are no reason to refuse, nor is swap.
        "failCgroupV1": false,
        "failSwapOn": false,
        // As containerd's: a score below the own one needs a capability.
        "oomScoreAdj": 0,
        "clusterDNS": [DNS.0],
        "clusterDomain": DNS.1,
        // Pods that want the node's names get none: the machine's resolver is not theirs.
        "resolvConf": "",
        // Below /usr otherwise, which is the machine's.
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        // Nodes share the machine's memory and disk, which others fill and empty; images are imported and do not come again.
        "evictionHard": {
            "memory.available": "50Mi",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
            "imagefs.inodesFree": "0%",
        },
        "imageGCHighThresholdPercent": 100,
        // Rules of iptables for a kube-proxy, which is not there.
        "makeIPTablesUtilChains": false,
        // Programs that were killed are back in a second, however often.
        "crashLoopBackOff": { "maxContainerRestartPeriod": "1s" },
        // With the controllers' grace of 16 s a node that is lost shows within 20.
        "nodeStatusUpdateFrequency": "3s",
        "nodeLeaseDurationSeconds": 12,
    })
}

/// The arguments of a kubelet.
#[must_use]
pub fn kubelet_arguments(name: &str, address: Ipv4Addr, config: &Path, identity: &NodeIdentity) -> Vec<String> {
    vec![
        format!("--config={}", config.display()),
        format!("--kubeconfig={}", identity.kubeconfig.display()),
        format!("--hostname-override={name}"),
        format!("--node-ip={address}"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_a_quote_stays_one_string() {
        let text = containerd(Path::new("/a \"b\"/runc"));
        assert!(text.contains(r#"BinaryName = "/a \"b\"/runc""#), "{text}");
    }

    #[test]
    fn nobody_without_a_certificate_asks_a_kubelet() {
        let identity = NodeIdentity {
            kubeconfig: "/k".into(),
            certificate: "/c".into(),
            key: "/y".into(),
            authority: "/a".into(),
        };
        let config = kubelet(&identity);
        assert_eq!(config["authentication"]["anonymous"]["enabled"], false);
        assert_eq!(config["authorization"]["mode"], "Webhook");
        assert_eq!(config["tlsCertFile"], "/c");
        let arguments = kubelet_arguments("node-1", Ipv4Addr::new(192, 0, 2, 1), Path::new("/x"), &identity);
        assert_eq!(arguments[3], "--node-ip=192.0.2.1");
    }
}
