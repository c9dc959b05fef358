//! The lab on a real API server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod common;

use common::{Lab, eventually, text};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(30);

fn manifest(tenant: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../examples/tenants/{tenant}.yaml"));
    file.canonicalize().unwrap().to_str().unwrap().to_owned()
}

/// Runs kubectl, which must succeed.
#[track_caller]
fn kubectl(lab: &Lab, line: &str) -> String {
    let mut arguments = vec!["kubectl"];
    arguments.extend(line.split(' '));
    lab.expect(&arguments)
}

/// Runs kubectl, which must fail.
#[track_caller]
fn refused(lab: &Lab, line: &str) -> String {
    let mut arguments = vec!["kubectl"];
    arguments.extend(line.split(' '));
    let output = lab.run(&arguments);
    assert!(!output.status.success(), "{line}: {}", text(&output));
    text(&output)
}

/// So many cells, all as expected.
#[track_caller]
fn expect_cells(lab: &Lab, cells: usize) {
    let (ok, report) = lab.check();
    assert!(ok, "{report:#}\n{}", lab.logs());
    assert_eq!(report["cells"].as_array().unwrap().len(), cells);
}

/// Everything that was refused for want of a right, by anybody.
fn forbidden(lab: &Lab) -> Vec<String> {
    let log = juneau_controlplane::AuditLog::new(&lab.dir().join("kubernetes/audit.log"));
    log.forbidden().unwrap().iter().map(|event| format!("{event:?}")).collect()
}

/// The tables of all agents. Devices have the numbers that the kernel gave; MAC addresses come from Pods' uids, which an
/// API server makes up; VNIs go to Subnets in the order in which an API server tells of their claims. The first MAC
/// address and the first VNI in order are called 0, and so on. What is of the VPC that nodes are in, whose routes stand in
/// `table_of_nodes`, is left out: on a directory nodes have no endpoints.
fn tables(lab: &Lab, table_of_nodes: Option<u64>) -> Value {
    let mut names: BTreeMap<&str, BTreeMap<String, usize>> = BTreeMap::new();
    let mut all = Vec::new();
    for node in ["node-1", "node-2"] {
        for table in ["endpoints", "routes"] {
            let output = lab.exec(node, &format!("juneau-agent {table} -o json"));
            let mut value: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
            let rows = value[table].as_array_mut().unwrap();
            rows.retain(|row| row["vpc"] != 1 && (table_of_nodes.is_none() || row["table"].as_u64() != table_of_nodes));
            for row in rows {
                for field in ["mac", "vni"] {
                    if let Some(value) = row.get(field).filter(|value| !value.is_null()) {
                        let names = names.entry(field).or_default();
                        let next = names.len();
                        row[field] = json!(*names.entry(value.to_string()).or_insert(next));
                    }
                }
                if let Some(ifindex) = row.get("ifindex").and_then(Value::as_u64) {
                    row["ifindex"] = json!(ifindex != 0);
                }
            }
            all.push(json!({ "node": node, "table": value }));
        }
    }
    Value::Array(all)
}

fn uid(lab: &Lab) -> String {
    kubectl(lab, "get pod -n red a1 -o jsonpath={.metadata.uid}")
}

/// A part of a lab's life.
type Part = fn(&Lab);

/// One lab for all of it: to bring one up takes longer than everything that is done to it.
#[test]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
fn tenants_come_live_and_go_on_an_api_server() {
    let lab = Lab::new("kubernetes");
    lab.expect(&["up", "--kubernetes", "--empty"]);
    let parts: [(&str, Part); 9] = [
        ("tenants come one after the other", tenants_come_one_after_the_other),
        ("the tables are those of a directory", the_tables_are_those_of_a_directory),
        ("all is ready, and nothing was complained of", all_is_ready_and_nothing_was_complained_of),
        ("a stranger looks around", a_stranger_looks_around),
        ("what is in use is named", what_is_in_use_is_named),
        ("a Pod is made again", a_pod_is_made_again),
        ("programs come back", programs_come_back),
        ("a node is added", a_node_is_added),
        ("a tenant goes", a_tenant_goes),
    ];
    for (name, part) in parts {
        let start = Instant::now();
        part(&lab);
        println!("{name}: {:.1} s", start.elapsed().as_secs_f32());
    }
    assert_eq!(forbidden(&lab), [""; 0]);
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(lab.pid("/kubernetes/processes/0/pid")), Signal::SIGKILL)
        .unwrap();
    eventually("a control plane that died is told", LIMIT, || {
        let status = lab.run(&["status"]);
        !status.status.success() && String::from_utf8_lossy(&status.stdout).contains("of the control plane ended")
    });
}

fn tenants_come_one_after_the_other(lab: &Lab) {
    for (tenant, cells) in [("blue", 36), ("red", 72)] {
        kubectl(lab, &format!("apply -f {}", manifest(tenant)));
        kubectl(lab, "wait pod --all --all-namespaces --for condition=Ready --timeout 120s");
        expect_cells(lab, cells);
    }
    assert_eq!(forbidden(lab), [""; 0]);
}

fn the_tables_are_those_of_a_directory(lab: &Lab) {
    let directory = Lab::new("kubernetes-directory");
    directory.expect(&["up", "--empty"]);
    directory.expect(&["apply", "-f", &manifest("blue"), "-f", &manifest("red")]);
    directory.expect_green();
    let of_nodes = kubectl(lab, "get routetable default -o jsonpath={.status.tableID}");
    let (there, here) = (tables(&directory, None), tables(lab, Some(of_nodes.parse().unwrap())));
    let endpoints = here[0]["table"]["endpoints"].as_array().unwrap();
    let macs: BTreeSet<u64> = endpoints.iter().filter_map(|row| row["mac"].as_u64()).collect();
    let vnis: BTreeSet<u64> = endpoints.iter().filter_map(|row| row["vni"].as_u64()).collect();
    assert_eq!((endpoints.len(), macs.len(), vnis.len()), (8, 8, 4));
    assert_eq!(there, here, "{there:#}\n{here:#}");
}

/// So far nothing went wrong. What is told when it has lasted 2 s is told by now: another lab came up meanwhile.
fn all_is_ready_and_nothing_was_complained_of(lab: &Lab) {
    let kinds = [
        ("vpc", 3),
        ("subnet", 5),
        ("routetable", 3),
        ("networkinterface", 8),
        ("networkendpoint", 10),
        ("allocationpool", 8),
        ("allocationclaim", 8),
        ("allocationlease", 8),
    ];
    for (kind, at_least) in kinds {
        let all: Value = serde_json::from_str(&kubectl(lab, &format!("get {kind} -A -o json"))).unwrap();
        let all = all["items"].as_array().unwrap();
        assert!(all.len() >= at_least, "{} of {kind}", all.len());
        for object in all {
            let conditions = object["status"]["conditions"].as_array().unwrap_or_else(|| panic!("{object:#}"));
            let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
            assert_eq!(ready.unwrap_or_else(|| panic!("{object:#}"))["status"], "True", "{object:#}");
            assert!(object["status"]["observedGeneration"].is_i64(), "{object:#}");
        }
    }
    let events: Value = serde_json::from_str(&kubectl(lab, "get events -A -o json")).unwrap();
    let events = events["items"].as_array().unwrap().iter();
    // The server's own are its business: a slow start makes one about its range of Services.
    let ours = |event: &&Value| !event["reportingComponent"].as_str().unwrap_or_default().starts_with("kubernetes-");
    let warnings: Vec<_> = events.filter(|event| event["type"] == "Warning").filter(ours).collect();
    assert!(warnings.is_empty(), "{warnings:#?}");
}

fn a_stranger_looks_around(lab: &Lab) {
    let listed = kubectl(lab, "get vpc,subnet,iface -A");
    for part in ["vpc.juneau.loutres.me/red", "subnet.juneau.loutres.me/blue-b", "10.0.2.20/24"] {
        assert!(listed.contains(part), "{listed}");
    }
    assert!(kubectl(lab, "get nic -n red").contains("a1.eth0"));
    assert!(kubectl(lab, "explain vpc.spec").contains("allowedNamespaces"));
    let pods = kubectl(lab, "get pods -A -o wide");
    assert!(pods.lines().filter(|line| line.contains("1/1") && line.contains("Running")).count() == 8, "{pods}");
    assert!(lab.expect(&["get", "iface"]).contains("red/a1.eth0"));
    assert!(lab.expect(&["get", "subnet", "red-a", "-o", "yaml"]).contains("vni: "));
    let status = lab.run(&["status"]).stdout;
    let status = String::from_utf8(status).unwrap();
    // The lab's API server is on no node, where no Service leads yet.
    let problem = |line: &&str| line.starts_with("problem") && !line.contains("Service/default/kubernetes: endpoint");
    assert_eq!(status.lines().find(problem), None, "{status}");
    assert!(status.contains("admin.kubeconfig"), "{status}");
    let explained = lab.exec("node-1", "juneau-agent explain red/a1 --to 10.0.2.20");
    assert!(text(&explained).contains("10.0.2.20"), "{}", text(&explained));
    for command in ["drops", "flows", "routes", "endpoints", "status"] {
        assert!(lab.exec("node-2", &format!("juneau-agent {command}")).status.success());
    }
    assert!(lab.exec("red/a1", "ping -c 1 -W 2 10.0.2.20").status.success());
    let thief = lab.dir().join("thief.json");
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "thief", "namespace": "red", "annotations": { "juneau.loutres.me/subnet": "blue-a" } },
        "spec": { "nodeName": "node-1", "containers": [{ "name": "c", "image": "none" }] },
    });
    std::fs::write(&thief, pod.to_string()).unwrap();
    let said = refused(lab, &format!("apply -f {}", thief.display()));
    assert!(said.contains("Namespace/red may not enter Vpc/blue"), "{said}");
    // The definitions have their rules.
    let said = refused(lab, r#"patch subnet red-a --type=merge -p {"spec":{"cidr":"10.0.1.0/25"}}"#);
    assert!(said.contains("spec.cidr") && said.contains("cannot be changed"), "{said}");
}

fn what_is_in_use_is_named(lab: &Lab) {
    let said = refused(lab, "delete vpc red");
    assert!(said.contains("Vpc red is in use by Subnet red-a, Subnet red-b"), "{said}");
    let said = refused(lab, "delete subnet red-a");
    assert!(said.contains("red/a1.eth0") && said.contains("red/a2.eth0"), "{said}");
    expect_cells(lab, 72);
}

fn a_pod_is_made_again(lab: &Lab) {
    let before = uid(lab);
    kubectl(lab, "delete pod -n red a1");
    assert!(!lab.dir().join("netns/red_a1").exists(), "its sandbox goes before its object");
    // Nobody has red's 10.0.1.10 any more, and nobody of blue's answers in its place.
    lab.expect_green();
    lab.expect(&["apply", "-f", &manifest("red")]);
    assert_ne!(uid(lab), before);
    expect_cells(lab, 72);
}

fn programs_come_back(lab: &Lab) {
    // An operator that is killed keeps its Lease for a while, which is the operator's own test.
    for (what, pointer, signal) in
        [("agent", "/nodes/node-1/agent/pid", Signal::SIGKILL), ("operator", "/operator/pid", Signal::SIGTERM)]
    {
        let pid = lab.pid(pointer);
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal).unwrap();
        eventually(&format!("another {what} works"), LIMIT, || {
            let status = lab.status();
            let now = status.pointer(pointer).and_then(Value::as_i64);
            now.is_some_and(|now| now != i64::from(pid)) && status["waiting"] == json!([])
        });
        expect_cells(lab, 72);
    }
}

fn a_node_is_added(lab: &Lab) {
    lab.expect(&["add-node", "node-3"]);
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "c1", "namespace": "red", "annotations": { "juneau.loutres.me/subnet": "red-a" } },
        "spec": { "nodeName": "node-3", "containers": [{ "name": "c", "image": "none" }] },
    });
    lab.apply(&pod.to_string());
    // By three protocols: with each of the four others of red, in both directions, and from the four of blue, in vain.
    expect_cells(lab, 72 + (4 * 2 + 4) * 3);
    lab.delete(&pod.to_string());
    expect_cells(lab, 72);
}

fn a_tenant_goes(lab: &Lab) {
    lab.expect(&["delete", "-f", &manifest("red")]);
    expect_cells(lab, 36);
    eventually("red's main route table is collected", LIMIT, || {
        !kubectl(lab, "get routetables,vpcs,subnets -o name").contains("red")
    });
}
