//! The lab on a real API server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::Lab;

fn up(name: &str, arguments: &[&str]) -> Lab {
    let lab = Lab::new(name);
    lab.expect(&[&["up", "--kubernetes"], arguments].concat());
    lab
}

/// Everything that was refused for want of a right, by anybody.
fn forbidden(lab: &Lab) -> Vec<String> {
    let log = juneau_controlplane::AuditLog::new(&lab.dir().join("kubernetes/audit.log"));
    let mut forbidden = log.forbidden().unwrap();
    // An agent asks for the uid of an endpoint that it refuses.
    forbidden.retain(|event| (event.verb.as_str(), event.resource.as_str()) != ("get", "networkendpoints"));
    forbidden.iter().map(|event| format!("{event:?}")).collect()
}

#[test]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
fn it_comes_up_and_the_example_has_the_same_table() {
    let lab = up("kubernetes", &["--no-check"]);
    let (ok, report) = lab.check();
    assert!(ok, "{report:#}");
    assert_eq!(report["cells"].as_array().unwrap().len(), 72);
    assert_eq!(forbidden(&lab), [""; 0]);
}
