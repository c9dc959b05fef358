//! Services of two tenants, from manifests to the model: whose each is, where it is met, and what is wrong with others.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::example;
use juneau_api::normalise::normalise;
use juneau_api::source::directory::{Change, Directory};
use juneau_core::model::{Model, RouteTarget};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The example with Service routing in both VPCs, and these documents in a file of their own.
fn model(documents: &str) -> (Model, Vec<String>) {
    changed(documents, &[])
}

fn changed(documents: &str, edits: &[(&str, &str, &str)]) -> (Model, Vec<String>) {
    let mut files = example();
    for name in ["red.yaml", "blue.yaml"] {
        let file = files.get_mut(name).unwrap();
        let vpc = file.find("kind: Vpc").unwrap();
        let spec = vpc + file[vpc..].find("spec: {}").unwrap();
        file.replace_range(spec..spec + "spec: {}".len(), "spec: {service: {consume: false}}");
    }
    for (name, from, to) in edits {
        let file = files.get_mut(*name).unwrap();
        assert!(file.contains(from), "{from:?} is not in {name}");
        *file = file.replacen(from, to, 1);
    }
    files.insert("services.yaml".to_owned(), documents.to_owned());
    let changes = files.into_iter().map(|(name, text)| (PathBuf::from(name), Change::Content(text.into_bytes())));
    let mut directory = Directory::new();
    directory.update(changes.collect::<BTreeMap<_, _>>());
    let snapshot = directory.snapshot();
    let (model, problems) = normalise(&snapshot.view, "node-1");
    let problems = snapshot.problems.into_iter().chain(problems).map(|problem| problem.to_string()).collect();
    (model, problems)
}

/// A Service with its slice: what else its metadata and spec say, and the addresses of its endpoints.
fn service(place: &str, metadata: &str, spec: &str, addresses: &[&str]) -> String {
    let (namespace, name) = place.split_once('/').unwrap();
    let endpoints: Vec<_> = addresses.iter().map(|address| format!("{{addresses: ['{address}']}}")).collect();
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: {namespace}, {metadata}}}\n\
         spec: {{ports: [{{port: 80}}], {spec}}}\n\
         ---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\n\
         metadata: {{name: {name}-1, namespace: {namespace}, labels: {{kubernetes.io/service-name: {name}}}}}\n\
         ports: [{{name: '', port: 8080}}]\nendpoints: [{}]\n",
        endpoints.join(", ")
    )
}

fn of(vpc: &str) -> String {
    format!("annotations: {{juneau.loutres.me/vpc: {vpc}}}")
}

/// Each Service as `name@VPC addresses -> backends`.
fn texts(model: &Model) -> Vec<String> {
    let all = model.services.values().map(|service| {
        let addresses: Vec<_> = service.addresses.iter().map(ToString::to_string).collect();
        let backends = service.ports.iter().flat_map(|port| port.backends.keys()).map(ToString::to_string);
        format!(
            "{}@{} {} -> {}",
            service.name,
            service.vpc,
            addresses.join(" "),
            backends.collect::<Vec<_>>().join(" ")
        )
    });
    all.collect()
}

#[test]
fn equal_addresses_in_two_vpcs_are_two_backends() {
    let red = service("red/web", &of("red"), "clusterIP: 10.96.0.10", &["10.0.1.10", "10.0.2.20"]);
    let blue = service("blue/web", &of("blue"), "clusterIP: 10.96.0.10", &["10.0.1.10"]);
    let (model, problems) = model(&(red + &blue));
    assert!(problems.is_empty(), "{problems:#?}");
    assert_eq!(
        texts(&model),
        ["blue/web@3 10.96.0.10 -> 10.0.1.10:8080", "red/web@2 10.96.0.10 -> 10.0.1.10:8080 10.0.2.20:8080"]
    );
}

#[test]
fn the_route_to_services_leads_to_services() {
    let routes = "  routes:\n";
    let edit = ("red.yaml", routes, "  routes:\n    - {dst: 10.96.0.0/12, via: {type: service}}\n");
    let (model, problems) = changed("", &[edit]);
    assert!(problems.is_empty(), "{problems:#?}");
    let table = model.tables.values().find(|table| table.name == "red").unwrap();
    assert_eq!(table.routes.iter().filter(|route| route.target == RouteTarget::Service).count(), 1);
}

#[test]
fn what_is_wrong_names_the_service_the_address_and_the_remedy() {
    let cluster = "clusterIP: 10.96.0.10";
    let outside = "use addresses of Pods of the VPC, or wait for a version that reaches others";
    let take_out = "take it out of the EndpointSlice, or use addresses of Pods of Vpc/red";
    let other =
        "name the VPC of its Pods in the annotation juneau.loutres.me/vpc, or select Pods of that VPC".to_owned();
    let green = of("green");
    let red = of("red");
    let subnet = "annotations: {juneau.loutres.me/subnet: red-a}".to_owned();
    for (metadata, spec, addresses, problem, backends) in [
        (&red, cluster, vec!["10.0.1.10", "192.0.2.7"], format!("endpoint 192.0.2.7 outside of Vpc/red is not reachable through a Service yet; {outside}"), Some(1)),
        (&red, cluster, vec!["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4", "192.0.2.5"], format!("endpoints 192.0.2.1, 192.0.2.2, 192.0.2.3 and 2 more outside of Vpc/red are not reachable through a Service yet; {outside}"), Some(0)),
        // A node is an endpoint of Vpc/default alone.
        (&red, cluster, vec!["192.168.77.11"], format!("endpoint 192.168.77.11 outside of Vpc/red is not reachable through a Service yet; {outside}"), Some(0)),
        (&red, cluster, vec!["10.9.9.9"], format!("endpoint 10.9.9.9 is in another VPC than the Service, which is in Vpc/red; {other}"), Some(0)),
        (&red, cluster, vec!["127.0.0.1", "169.254.7.7", "224.0.0.1", "0.0.0.0"], format!("endpoints 0.0.0.0, 127.0.0.1, 169.254.7.7 and 1 more are nothing that can be reached from elsewhere; {take_out}"), Some(0)),
        (&red, cluster, vec!["web"], format!("endpoint \"web\" is no address; {take_out}"), Some(0)),
        (&red, cluster, vec!["fd00::7"], format!("endpoint fd00::7 is not of IPv4, as the EndpointSlice says; {take_out}"), Some(0)),
        (&green, cluster, vec![], "Vpc/green does not exist; create Vpc/green, or name another".to_owned(), None),
        (&String::new(), cluster, vec![], "Vpc/default does not exist; create Vpc/default, or name another".to_owned(), None),
        (&subnet, cluster, vec![], "annotation juneau.loutres.me/subnet: is for Pods and Namespaces; a Service is in a Vpc, not in a Subnet; remove it, and name the Vpc in juneau.loutres.me/vpc".to_owned(), None),
        (&red, "", vec!["10.0.1.10"], "has no ClusterIP; set spec.clusterIP".to_owned(), None),
        (&red, "clusterIP: fd00::1", vec![], "its ClusterIP fd00::1 is of IPv6, which is not programmed yet; create the Service without one, and it is given one".to_owned(), None),
        (&red, "clusterIP: web", vec![], "its ClusterIP \"web\" is no address; create the Service without one, and it is given one".to_owned(), None),
        (&red, "clusterIP: 10.96.0.10, externalIPs: [127.0.0.1]", vec!["10.0.1.10"], "its external address 127.0.0.1 is none that packets go to; take it out of spec.externalIPs, or use another".to_owned(), Some(1)),
    ] {
        let mut documents = service("red/web", metadata, spec, &addresses);
        documents.push_str(&service("blue/web", &of("blue"), cluster, &["10.0.1.10"]));
        let edit = ("blue.yaml", "10.0.2.10", "10.0.2.10");
        // Blue alone has this address.
        let file = if problem.contains("10.9.9.9") { blue_with_another_address() } else { vec![edit] };
        let (model, problems) = changed(&documents, &file);
        assert_eq!(problems, [format!("Service/red/web (services.yaml, document 1): {problem}")]);
        let found = model.services.get("red/web").map(|service| service.ports[0].backends.len());
        assert_eq!(found, backends, "{problem}");
        assert_eq!(model.services["blue/web"].ports[0].backends.len(), 1, "the other tenant notices");
    }
}

/// Blue's a1 in a Subnet that red has nothing like.
fn blue_with_another_address() -> Vec<(&'static str, &'static str, &'static str)> {
    vec![
        ("blue.yaml", "cidr: 10.0.2.0/24", "cidr: 10.9.9.0/24"),
        ("blue.yaml", "gateway: 10.0.2.1", "gateway: 10.9.9.1"),
        ("blue.yaml", "dst: 10.0.2.0/24", "dst: 10.9.9.0/24"),
        ("blue.yaml", "10.0.2.10", "10.9.9.9"),
        ("blue.yaml", "10.0.2.10", "10.9.9.9"),
        ("blue.yaml", "10.0.2.20", "10.9.9.20"),
        ("blue.yaml", "10.0.2.20", "10.9.9.20"),
    ]
}

#[test]
fn a_vpc_without_service_routing_and_one_that_is_closed() {
    let web = service("red/web", &of("red"), "clusterIP: 10.96.0.10", &["10.0.1.10"]);
    let off = ("red.yaml", "spec: {service: {consume: false}}", "spec: {}");
    let (model, problems) = changed(&web, &[off]);
    assert_eq!(
        problems,
        [
            "Service/red/web (services.yaml, document 1): Vpc/red has no Services; set spec.service of Vpc/red, or name another VPC"
        ]
    );
    assert!(model.services.is_empty());

    // A tenant's Namespace is no way into another's VPC.
    let closed = "spec: {service: {}, allowedNamespaces: {matchLabels: {kubernetes.io/metadata.name: blue}}}";
    let thief = service("red/thief", &of("blue"), "clusterIP: 10.96.0.10", &["10.0.1.10"]);
    let web = service("blue/web", &of("blue"), "clusterIP: 10.96.0.10", &["10.0.1.10"]);
    let (model, problems) = changed(&(thief + &web), &[("blue.yaml", "spec: {service: {consume: false}}", closed)]);
    let [problem] = problems.as_slice() else { panic!("{problems:#?}") };
    assert!(
        problem.starts_with("Service/red/thief (services.yaml, document 1): Namespace/red may not enter Vpc/blue: ")
    );
    assert_eq!(texts(&model), ["blue/web@3 10.96.0.10 -> 10.0.1.10:8080"]);
}

#[test]
fn the_older_of_two_has_an_address_that_both_claim() {
    let meta = |vpc: &str, day: u8| format!("creationTimestamp: '2026-01-0{day}T00:00:00Z', {}", of(vpc));
    let older = service("red/z", &meta("red", 1), "clusterIP: 10.96.0.10", &["10.0.1.10"]);
    let younger = service("red/a", &meta("red", 2), "clusterIP: 10.96.0.11, externalIPs: [10.96.0.10]", &["10.0.1.10"]);
    let blue = service("blue/b", &meta("blue", 3), "clusterIP: 10.96.0.10", &["10.0.1.10"]);
    let other_port = service("red/y", &meta("red", 4), "clusterIP: 10.96.0.12, externalIPs: [10.96.0.10]", &[]);
    let other_port = other_port.replace("{port: 80}", "{port: 81}");
    let (model, problems) = model(&(older + &younger + &blue + &other_port));
    assert_eq!(
        problems,
        ["Service/red/a (services.yaml, document 3): 10.96.0.10 port 80 is Service/red/z's already; \
          give each Service of a VPC addresses or ports of its own"]
    );
    assert_eq!(
        texts(&model),
        [
            "blue/b@3 10.96.0.10 -> 10.0.1.10:8080",
            "red/a@2 10.96.0.11 -> 10.0.1.10:8080",
            "red/y@2 10.96.0.10 10.96.0.12 -> ",
            "red/z@2 10.96.0.10 -> 10.0.1.10:8080",
        ]
    );
}

#[test]
fn nodes_are_endpoints_of_the_default_vpc() {
    let documents = "apiVersion: juneau.loutres.me/v1alpha1\nkind: Vpc\nmetadata: {name: default}\n\
                     spec: {service: {consume: true}}\nstatus: {vpcID: 1}\n"
        .to_owned()
        + &service("default/kubernetes", "", "clusterIP: 10.96.0.1", &["192.168.77.12"]);
    let (model, problems) = model(&documents);
    assert!(problems.is_empty(), "{problems:#?}");
    assert_eq!(texts(&model), ["default/kubernetes@1 10.96.0.1 -> 192.168.77.12:8080"]);

    // Without that VPC it is nobody's slip, and another's is one.
    let kubernetes = service("default/kubernetes", "", "clusterIP: 10.96.0.1", &["192.168.77.12"]);
    let (nothing, problems) = self::model(&kubernetes);
    assert!(nothing.services.is_empty() && problems.is_empty(), "{problems:#?}");
    let (_, problems) = self::model(&service("default/web", "", "clusterIP: 10.96.0.1", &[]));
    assert_eq!(problems.len(), 1, "{problems:#?}");
}
