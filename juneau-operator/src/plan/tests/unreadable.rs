//! Objects that exist and cannot be decoded.

use super::*;

#[test]
fn nothing_that_depends_on_an_object_that_cannot_be_decoded_is_given_away() {
    let mut cluster = Cluster::with("red", "10.0.0.0/28");
    cluster.config.node_namespace = Some("juneau-system".to_owned());
    cluster.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "juneau-system"}}));
    cluster.pod("red", "a");
    cluster.pod("red", "b");
    cluster.settle();
    cluster.sleep(86_400);
    cluster.settle();
    let mut seen = 0;
    for kind in Kind::ALL {
        for object in cluster.objects.view().all(kind) {
            let name = object.name();
            let mut view = cluster.objects.view().clone();
            view.remove(kind, &name);
            view.undecodable.insert((kind, name.clone()));
            seen += 1;
            let plan = planned(&mut cluster.memory.clone(), &view, &cluster.config, cluster.now);
            for change in &plan.changes {
                let target = change.target();
                // What is about the object itself is not carried out (the runner sees to that); a status tells of it.
                let own = target.kind == kind && target.name == name;
                assert!(own || matches!(change, Change::Status(_)), "{kind}/{name}: {change}");
            }
            // Without the knowledge that it is there, something would have been lost.
            view.undecodable.clear();
            if kind == Kind::Vpc || kind == Kind::Subnet || kind == Kind::AllocationClaim {
                assert!(!super::plan(&view, &cluster.config, cluster.now).changes.is_empty(), "{kind}/{name}");
            }
        }
    }
    assert!(seen > 20, "{seen}");
}

#[test]
fn an_address_whose_lease_cannot_be_decoded_is_taken() {
    let mut cluster = Cluster::with("red", "10.0.0.0/28");
    cluster.pod("red", "a");
    cluster.settle();
    cluster.pod("red", "b");
    cluster.step();
    cluster.step();
    let mut view = cluster.objects.view().clone();
    // The next one in turn is 10.0.0.5; say that a lease that nobody can read has it.
    view.undecodable.insert((Kind::AllocationLease, key("subnet-ip-red--10-0-0-5")));
    let plan = plan(&view, &cluster.config, cluster.now);
    let made: Vec<String> = plan.changes.iter().map(ToString::to_string).collect();
    assert_eq!(made, ["create AllocationLease/subnet-ip-red--10-0-0-6"]);
}
