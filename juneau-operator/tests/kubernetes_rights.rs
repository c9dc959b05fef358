//! Whose VPC: two Namespaces try to enter each other's by every way in, with the webhook up, with it down, and where a
//! binding is required; and what users may write at all.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use juneau_controlplane::Options;
use kube::Client;
use serde_json::{Value, json};
use support::{Cluster, Operator, ask, create, delete, is_ready, merge, object, pod, port};

const SUBNET: &str = "juneau.loutres.me/subnet";
const ADDRESS: &str = "juneau.loutres.me/address";
const NETWORKS: &str = "juneau.loutres.me/networks";

/// Kinds that say who has which address.
const OURS: [(&str, &str); 5] = [
    ("networkinterfaces", "NetworkInterface"),
    ("networkendpoints", "NetworkEndpoint"),
    ("allocationpools", "AllocationPool"),
    ("allocationclaims", "AllocationClaim"),
    ("allocationleases", "AllocationLease"),
];

/// Every way in which annotations of a Pod name a Subnet, with the interface that it gets there.
fn ways(subnet: &str) -> Vec<(&'static str, &'static str, Value)> {
    let list = |elements: Value| elements.to_string();
    let mine = |interface: &str| json!({"interface": interface, "subnet": "blue-a"});
    let there = |interface: &str| json!({"interface": interface, "subnet": subnet});
    vec![
        ("subnet", "eth0", json!({SUBNET: subnet})),
        ("spaces", "eth0", json!({SUBNET: format!("  {subnet} ")})),
        ("address", "eth0", json!({SUBNET: subnet, ADDRESS: "10.0.1.99"})),
        ("more", "eth1", json!({NETWORKS: list(json!([there("eth1")]))})),
        ("whole", "eth0", json!({NETWORKS: list(json!([there("eth0")]))})),
        ("second", "eth1", json!({NETWORKS: list(json!([mine("eth0"), there("eth1")]))})),
        (
            "fixed",
            "eth1",
            json!({NETWORKS: list(json!([{"interface": "eth1", "subnet": subnet, "address": "10.0.1.98"}]))}),
        ),
    ]
}

fn only(tenant: &str) -> Value {
    json!({"allowedNamespaces": {"matchLabels": {"tenant": tenant}}})
}

fn pod_path(name: &str) -> String {
    format!("/api/v1/namespaces/blue/pods/{name}")
}

/// Changes an annotation of a Pod or a Namespace; nothing takes it away.
async fn annotate(client: &Client, path: &str, key: &str, value: Option<&str>) -> Result<Value, String> {
    merge(client, path, json!({"metadata": {"annotations": {key: value}}})).await
}

/// What the user may do in Namespace blue.
async fn can(user: &Client, verb: &str, group: &str, resource: &str) -> bool {
    let (resource, part) = resource.split_once('/').unwrap_or((resource, ""));
    let attributes =
        json!({"namespace": "blue", "verb": verb, "group": group, "resource": resource, "subresource": part});
    let kind = "SelfSubjectAccessReview";
    let review =
        json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": {"resourceAttributes": attributes}});
    create(user, &review.to_string()).await.unwrap()["status"]["allowed"] == true
}

async fn interface(cluster: &Cluster, namespace: &str, name: &str) -> Option<Value> {
    let all = cluster.list("NetworkInterface").await;
    all.into_iter().find(|nic| nic["metadata"]["name"] == name && nic["metadata"]["namespace"] == namespace)
}

async fn enters(cluster: &Cluster, operator: &Operator, namespace: &str, name: &str, subnet: &str) {
    let what = format!("{namespace}/{name} has an address of {subnet}");
    cluster
        .until(&what, &[operator], async |cluster| {
            interface(cluster, namespace, name)
                .await
                .is_some_and(|nic| is_ready(&nic) && nic["spec"]["subnet"] == subnet)
        })
        .await;
}

async fn stays_outside(cluster: &Cluster, operator: &Operator, namespace: &str, name: &str, vpc: &str) {
    let what = format!("{namespace}/{name} is refused");
    cluster
        .until(&what, &[operator], async |cluster| {
            let nic = interface(cluster, namespace, name).await.unwrap_or_default();
            let conditions = nic["status"]["conditions"].to_string();
            nic["status"]["phase"] == "Failed"
                && conditions.contains("NamespaceNotAllowed")
                && conditions.contains(&format!("Namespace/{namespace}"))
                && conditions.contains(&format!("Vpc/{vpc}"))
        })
        .await;
    assert!(interface(cluster, namespace, name).await.unwrap()["status"]["address"].is_null(), "{name}");
}

/// Nobody of one tenant has anything of the other's, whatever was tried.
async fn tenants_are_apart(cluster: &Cluster) {
    for endpoint in cluster.list("NetworkEndpoint").await {
        let namespace = endpoint["metadata"]["namespace"].as_str().unwrap().to_owned();
        for (tenant, other) in [("red", "blue"), ("blue", "red")] {
            let foreign = endpoint["spec"]["subnet"] == format!("{other}-a");
            assert!(namespace != tenant || !foreign, "{endpoint}");
        }
    }
    for claim in cluster.list("AllocationClaim").await {
        if claim["spec"]["poolRefs"][0]["name"] == "subnet-ip-red-a" {
            assert_eq!(claim["spec"]["resourceRef"]["namespace"], "red", "{claim}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
async fn no_namespace_enters_anothers_vpc_by_any_way() {
    let cluster = Cluster::with(true, Options::default().controllers()).await;
    let operator = Operator::start(&cluster, cluster.webhook).await;
    cluster
        .until("the default Subnet", &[&operator], async |cluster| {
            cluster.get("Subnet", "default").await.is_some_and(|subnet| is_ready(&subnet))
        })
        .await;
    for tenant in ["red", "blue"] {
        cluster.namespace(tenant, json!({}));
        let vpc = object("Vpc", tenant, only(tenant));
        cluster.until("a Vpc is admitted", &[&operator], async |cluster| cluster.try_apply(&vpc).is_ok()).await;
        cluster.apply(&object("Subnet", &format!("{tenant}-a"), json!({"vpc": tenant, "cidr": "10.0.1.0/24"})));
        let user = format!("{tenant}-user");
        for role in ["edit", "admin"] {
            let name = format!("{user}-{role}");
            let arguments = ["create", "rolebinding", &name, "-n", tenant, "--clusterrole", role, "--user", &user];
            cluster.run(&arguments, "").unwrap();
        }
    }
    let user = support::client(&cluster.control_plane.user_kubeconfig("blue-user", None).unwrap()).await;
    cluster
        .until("roles are aggregated", &[&operator], async |_| {
            can(&user, "create", "", "pods").await
                && can(&user, "create", "rbac.authorization.k8s.io", "rolebindings").await
        })
        .await;
    users_write_nothing_that_says_who_has_which_address(&user).await;
    the_webhook_refuses(&cluster, &operator, &user).await;

    // From here on nobody answers where the API server asks.
    operator.stop();
    let operator = Operator::start(&cluster, port()).await;
    the_operator_refuses(&cluster, &operator, &user).await;
    operator.stop();
    a_binding_may_be_required(&cluster).await;
    tenants_are_apart(&cluster).await;
    cluster.nothing_was_forbidden();
}

async fn users_write_nothing_that_says_who_has_which_address(user: &Client) {
    const GROUP: &str = "juneau.loutres.me";
    let refused = |said: Result<Value, String>, what: &str| {
        let said = said.expect_err(what);
        assert!(said.contains("orbidden"), "{what}: {said}");
    };
    for (plural, kind) in OURS {
        for verb in ["create", "update", "patch", "delete", "deletecollection"] {
            assert!(!can(user, verb, GROUP, plural).await, "{verb} {plural}");
        }
        assert!(!can(user, "update", GROUP, &format!("{plural}/status")).await, "{plural}/status");
        let metadata = match plural.starts_with("network") {
            true => json!({"name": "mine", "namespace": "blue"}),
            false => json!({"name": "mine"}),
        };
        let made = json!({"apiVersion": "juneau.loutres.me/v1alpha1", "kind": kind, "metadata": metadata, "spec": {}});
        refused(create(user, &made.to_string()).await, kind);
        let path = support::path(&made, true);
        refused(merge(user, &path, json!({"spec": {"subnet": "red-a"}})).await, kind);
        refused(delete(user, &path).await, kind);
    }
    // What is theirs to see in their own namespace, they see.
    for plural in ["networkinterfaces", "networkendpoints"] {
        assert!(can(user, "list", GROUP, plural).await, "list {plural}");
    }
    // A role in a namespace gives nothing on kinds of the whole cluster, nor on the namespace itself.
    for (kind, name) in [("Vpc", "mine"), ("Subnet", "blue-b"), ("RouteTable", "mine")] {
        refused(create(user, &object(kind, name, json!({"vpc": "red"}))).await, kind);
    }
    let red = "/apis/juneau.loutres.me/v1alpha1/vpcs/red";
    refused(merge(user, red, json!({"spec": {"allowedNamespaces": null}})).await, "Vpc red");
    refused(annotate(user, "/api/v1/namespaces/blue", SUBNET, Some("red-a")).await, "Namespace blue");
    refused(merge(user, "/api/v1/namespaces/blue", json!({"metadata": {"labels": {"tenant": "red"}}})).await, "label");
    // Nor do they give themselves more than they have.
    let role =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "networkendpoint-admin-role"});
    let subject = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "blue-user"});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "more", "namespace": "blue"}, "roleRef": role, "subjects": [subject]});
    refused(create(user, &binding.to_string()).await, "RoleBinding");
}

async fn the_webhook_refuses(cluster: &Cluster, operator: &Operator, user: &Client) {
    const SAYS: &str = "Namespace/blue may not enter Vpc/red";
    const BLUE: &str = "/api/v1/namespaces/blue";
    let admin = &cluster.client;
    for (way, nic, there) in ways("red-a") {
        let said = create(user, &pod("blue", &format!("up-{way}"), "node-a", there)).await.expect_err(way);
        assert!(said.contains(SAYS), "{way}: {said}");
        // The same in their own.
        let (_, _, own) = ways("blue-a").into_iter().find(|(name, ..)| *name == way).unwrap();
        let name = format!("own-{way}");
        create(user, &pod("blue", &name, "node-a", own)).await.unwrap_or_else(|error| panic!("{way}: {error}"));
        enters(cluster, operator, "blue", &format!("{name}.{nic}"), "blue-a").await;
        delete(user, &pod_path(&name)).await.unwrap();
    }
    // After creation.
    create(user, &pod("blue", "b", "node-a", json!({SUBNET: "blue-a"}))).await.unwrap();
    enters(cluster, operator, "blue", "b.eth0", "blue-a").await;
    for (key, value) in [(SUBNET, "red-a"), (NETWORKS, r#"[{"interface":"eth1","subnet":"red-a"}]"#)] {
        let said = annotate(user, &pod_path("b"), key, Some(value)).await;
        assert!(said.as_ref().is_err_and(|said| said.contains("cannot change")), "{said:?}");
    }
    annotate(user, &pod_path("b"), "a.b/c", Some("d")).await.unwrap();
    // By the Namespace; also by one whose Subnet came later.
    let said = annotate(admin, BLUE, SUBNET, Some("red-a")).await.unwrap_err();
    assert!(said.contains(SAYS), "{said}");
    annotate(admin, BLUE, SUBNET, Some("red-later")).await.unwrap();
    cluster.apply(&object("Subnet", "red-later", json!({"vpc": "red", "cidr": "10.0.2.0/24"})));
    let plain = pod("blue", "plain", "node-a", json!({}));
    cluster
        .until("a Pod without annotations is refused", &[operator], async |_| {
            let said = create(user, &plain).await;
            let _ = delete(user, &pod_path("plain")).await;
            said.is_err_and(|said| said.contains(SAYS))
        })
        .await;
    annotate(admin, BLUE, SUBNET, Some("blue-a")).await.unwrap();
    cluster.until("a Pod without annotations enters", &[operator], async |_| create(user, &plain).await.is_ok()).await;
    enters(cluster, operator, "blue", "plain.eth0", "blue-a").await;
    annotate(admin, BLUE, SUBNET, None).await.unwrap();
    // The name of a virtual machine of the other tenant's: an identity is one of its Namespace.
    let launcher = |namespace: &str, subnet: &str| {
        let mut pod: Value =
            serde_json::from_str(&pod(namespace, "launcher", "node-a", json!({SUBNET: subnet}))).unwrap();
        pod["metadata"]["labels"] = json!({"vm.kubevirt.io/name": "vm"});
        pod.to_string()
    };
    create(admin, &launcher("red", "red-a")).await.unwrap();
    enters(cluster, operator, "red", "launcher.eth0", "red-a").await;
    delete(admin, "/api/v1/namespaces/red/pods/launcher").await.unwrap();
    create(user, &launcher("blue", "blue-a")).await.unwrap();
    enters(cluster, operator, "blue", "launcher.eth0", "blue-a").await;
    let leases = cluster.list("AllocationLease").await;
    let of_red = leases.iter().filter(|lease| lease["spec"]["poolRef"]["name"] == "subnet-ip-red-a");
    for lease in of_red {
        assert!(lease["spec"]["claimRef"]["name"].as_str().unwrap().contains("--red--"), "{lease}");
    }
    // A route of one's own Vpc to an endpoint of another.
    let via = json!({"type": "endpoint", "endpointName": "blue/b.eth0"});
    let table = |vpc: &str| {
        let routes = json!([{"dst": "10.77.0.0/24", "via": via}]);
        object("RouteTable", &format!("{vpc}-t"), json!({"vpc": vpc, "routes": routes}))
    };
    let said = create(admin, &table("red")).await.unwrap_err();
    assert!(said.contains("blue/b.eth0") && said.contains("Vpc"), "{said}");
    create(admin, &table("blue")).await.unwrap();
    tenants_are_apart(cluster).await;
}

async fn the_operator_refuses(cluster: &Cluster, operator: &Operator, user: &Client) {
    const BLUE: &str = "/api/v1/namespaces/blue";
    let admin = &cluster.client;
    let make = async |name: &str, annotations: Value| {
        let text = pod("blue", name, "node-a", annotations);
        create(user, &text).await.unwrap_or_else(|error| panic!("{name}: {error}"));
    };
    for (way, _, there) in ways("red-a") {
        make(&format!("down-{way}"), there).await;
    }
    for (way, _, own) in ways("blue-a") {
        make(&format!("ok-{way}"), own).await;
    }
    for (way, nic, _) in ways("") {
        stays_outside(cluster, operator, "blue", &format!("down-{way}.{nic}"), "red").await;
        enters(cluster, operator, "blue", &format!("ok-{way}.{nic}"), "blue-a").await;
    }
    // After creation: the Pod is not where it was any more, and not where it wants to be either.
    annotate(user, &pod_path("b"), SUBNET, Some("red-a")).await.unwrap();
    stays_outside(cluster, operator, "blue", "b.eth0", "red").await;
    annotate(user, &pod_path("b"), SUBNET, Some("blue-a")).await.unwrap();
    enters(cluster, operator, "blue", "b.eth0", "blue-a").await;
    // A binding carries annotations into the Pod, past whoever admits Pods: a scheduler's right, not a user's.
    for (name, subnet) in [("bound", "blue-a"), ("smuggled", "red-a")] {
        let mut unbound: Value = serde_json::from_str(&pod("blue", name, "", json!({}))).unwrap();
        unbound["spec"]["schedulerName"] = json!("nobody");
        create(user, &unbound.to_string()).await.unwrap();
        let metadata = json!({"name": name, "namespace": "blue", "annotations": {SUBNET: subnet}});
        let target = json!({"apiVersion": "v1", "kind": "Node", "name": "node-a"});
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target});
        let path = format!("{}/binding", pod_path(name));
        let said = ask(user, "POST", &path, Some(&binding)).await;
        assert!(said.as_ref().is_err_and(|said| said.contains("orbidden")), "{said:?}");
        ask(admin, "POST", &path, Some(&binding)).await.unwrap();
    }
    enters(cluster, operator, "blue", "bound.eth0", "blue-a").await;
    stays_outside(cluster, operator, "blue", "smuggled.eth0", "red").await;
    // By the Namespace: for Pods that come from now on.
    annotate(admin, BLUE, SUBNET, Some("red-a")).await.unwrap();
    again(cluster, operator, user, "none", json!({}), |nic| nic["spec"]["subnet"] == "red-a").await;
    stays_outside(cluster, operator, "blue", "none.eth0", "red").await;
    annotate(admin, BLUE, SUBNET, None).await.unwrap();
    // Who is in when a label goes stays; who comes is refused.
    let label = async |tenant: &str| {
        merge(admin, BLUE, json!({"metadata": {"labels": {"tenant": tenant}}})).await.unwrap();
    };
    label("none").await;
    again(cluster, operator, user, "late", json!({SUBNET: "blue-a"}), |nic| nic["status"]["phase"] == "Failed").await;
    stays_outside(cluster, operator, "blue", "late.eth0", "blue").await;
    assert!(is_ready(&interface(cluster, "blue", "b.eth0").await.unwrap()));
    label("blue").await;
    enters(cluster, operator, "blue", "late.eth0", "blue-a").await;
    tenants_are_apart(cluster).await;
}

/// Makes a Pod, and makes it anew until its interface is so: the operator hears of a Namespace and of a Pod in any order.
async fn again(
    cluster: &Cluster,
    operator: &Operator,
    user: &Client,
    name: &str,
    annotations: Value,
    is: impl Fn(&Value) -> bool,
) {
    let text = pod("blue", name, "node-a", annotations);
    let nic = format!("{name}.eth0");
    cluster
        .until(&format!("Pod {name}"), &[operator], async |cluster| {
            let _ = create(user, &text).await;
            let judged = async |cluster: &Cluster| {
                let nic = interface(cluster, "blue", &nic).await.unwrap_or_default();
                !nic["status"]["phase"].is_null()
            };
            cluster.until("its interface is judged", &[operator], judged).await;
            let right = interface(cluster, "blue", &nic).await.is_some_and(|nic| is(&nic));
            if !right {
                let _ = delete(user, &pod_path(name)).await;
            }
            right
        })
        .await;
}

/// A Vpc without `allowedNamespaces` is open to all, or, where a binding is required, to nobody.
async fn a_binding_may_be_required(cluster: &Cluster) {
    let into = |name: &str, subnet: &str| pod("blue", name, "node-a", json!({SUBNET: subnet}));
    let operator = Operator::start(cluster, cluster.webhook).await;
    let vpc = object("Vpc", "open", json!({}));
    cluster.until("a Vpc is admitted", &[&operator], async |cluster| cluster.try_apply(&vpc).is_ok()).await;
    cluster.apply(&object("Subnet", "open-a", json!({"vpc": "open", "cidr": "10.0.1.0/24"})));
    cluster.apply(&into("before", "open-a"));
    enters(cluster, &operator, "blue", "before.eth0", "open-a").await;
    operator.stop();

    let operator = Operator::start_with(cluster, port(), &["--require-namespace-binding"]).await;
    cluster.apply(&into("past", "open-a"));
    stays_outside(cluster, &operator, "blue", "past.eth0", "open").await;
    cluster.apply(&into("everybodys", "default"));
    enters(cluster, &operator, "blue", "everybodys.eth0", "default").await;
    operator.stop();

    let operator = Operator::start_with(cluster, cluster.webhook, &["--require-namespace-binding"]).await;
    cluster
        .until("the webhook refuses", &[&operator], async |cluster| {
            let path = "/api/v1/namespaces/blue/pods?dryRun=All";
            let dry: Value = serde_json::from_str(&into("after", "open-a")).unwrap();
            let said = ask(&cluster.client, "POST", path, Some(&dry)).await;
            said.is_err_and(|said| said.contains("Namespace/blue may not enter Vpc/open") && said.contains("requires"))
        })
        .await;
    cluster.apply(&object("Vpc", "open", json!({"allowedNamespaces": {}})));
    cluster
        .until("who is named enters", &[&operator], async |cluster| cluster.try_apply(&into("after", "open-a")).is_ok())
        .await;
    enters(cluster, &operator, "blue", "after.eth0", "open-a").await;
    enters(cluster, &operator, "blue", "past.eth0", "open-a").await;
    operator.stop();
}
