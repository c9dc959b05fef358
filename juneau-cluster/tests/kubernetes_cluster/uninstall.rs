//! Juneau is taken off a cluster.

use crate::fixture::Fixture;
use crate::programs::succeeds;
use std::collections::BTreeMap;
use std::time::Instant;

/// What of Juneau's is on a node. Of what it has in `/run` an empty directory stays, which is mounted where it works.
const OURS: [&str; 5] = [
    "/sys/fs/bpf/juneau",
    "/opt/cni/bin/juneau",
    "/etc/cni/net.d/05-juneau.conflist",
    "/run/juneau/*",
    "/sys/class/net/juneau*",
];

#[test]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
fn uninstalled_as_documented_nothing_is_left() {
    let fixture = Fixture::shared();
    let turn = fixture.turn();
    let begun = Instant::now();
    let there = |node: &str| {
        let exists =
            |path: &&&str| fixture.on(node, &format!("ls -d {path} 2>/dev/null || true")).lines().next().is_some();
        OURS.iter().filter(exists).copied().collect::<Vec<_>>()
    };
    for node in ["node-1", "node-2"] {
        assert_eq!(there(node), OURS, "the positive control");
    }
    // docs/install.md, section "Remove".
    for tenant in ["red", "blue"] {
        succeeds(&mut fixture.kubectl(&format!("-n {tenant} delete pod --all --timeout=60s")));
    }
    succeeds(&mut fixture.kubectl("delete validatingwebhookconfiguration,mutatingwebhookconfiguration juneau"));
    succeeds(&mut fixture.kubectl("-n juneau-system delete deployment/juneau-operator daemonset/juneau-agent"));
    let juneau = fixture.cluster().paths().dir().join("deploy/juneau");
    succeeds(fixture.kubectl("apply --server-side -k").arg(juneau.join("overlays/uninstall")));
    succeeds(&mut fixture.kubectl("-n juneau-system rollout status daemonset/juneau-uninstall --timeout=90s"));
    let said =
        succeeds(&mut fixture.kubectl(
            "-n juneau-system logs -l app.kubernetes.io/name=juneau-uninstall -c uninstall --prefix --tail=-1",
        ));
    for part in ["removed", "05-juneau.conflist", "/sys/fs/bpf/juneau", "juneau.vxlan"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    for node in ["node-1", "node-2"] {
        assert_eq!(there(node), [""; 0], "{node}: {said}");
        assert!(fixture.on(node, "ls /opt/cni/bin").contains("loopback"), "what is not ours stays");
    }
    for kind in ["vpcs", "subnets", "routetables", "networkinterfaces"] {
        let kind = format!("{kind}.juneau.loutres.me");
        let objects = fixture.get(&format!("{kind} -A"));
        let mut names: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for object in objects["items"].as_array().unwrap() {
            let part = |key: &str| object["metadata"][key].as_str().unwrap_or("default");
            names.entry(part("namespace")).or_default().push(part("name"));
        }
        for (namespace, names) in names {
            let mut patch = fixture.kubectl(&format!("-n {namespace} patch {kind} --type=merge"));
            succeeds(patch.args(names).args(["-p", r#"{"metadata":{"finalizers":null}}"#]));
        }
    }
    succeeds(fixture.kubectl("delete --ignore-not-found --timeout=60s -k").arg(&juneau));
    let left = succeeds(&mut fixture.kubectl("get crd,clusterrole,clusterrolebinding,namespace -o name"));
    assert!(!left.contains("juneau"), "{left}");
    println!("{:.1} s: Juneau is gone", begun.elapsed().as_secs_f32());
    fixture.is_uninstalled();
    drop(turn);

    // And back, by `make test-long`: installing is what every other test begins with.
    if std::env::var_os("JUNEAU_LONG").is_some() {
        drop(fixture.turn());
        assert!(fixture.installation().without_agents.values().all(|(ready, _)| !ready));
    }
}
