//! A directory with users' files in it.

use super::*;
use juneau_api::source::directory::DirectorySource;
use juneau_api::source::planned::is_up_to_date;
use std::fs;

const RED: &str = "
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}
---
apiVersion: juneau.loutres.me/v1alpha1
kind: Vpc
metadata: {name: red}
spec: {}
---
apiVersion: juneau.loutres.me/v1alpha1
kind: Subnet
metadata: {name: red}
spec: {vpc: red, cidr: 10.0.0.0/24}
---
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: red, annotations: {juneau.loutres.me/subnet: red}}
spec: {nodeName: n1, containers: []}
";

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn open(path: &Path) -> Directory {
    Directory::open(path, Config::default()).unwrap()
}

fn address(directory: &Directory) -> Option<String> {
    let nic = directory.view().network_interfaces.get(&ObjectName::new("red", "a.eth0"))?;
    nic.status.as_ref()?.address.clone()
}

fn contents(path: &Path) -> Vec<(PathBuf, String)> {
    let mut all = Vec::new();
    for inside in ["objects", "status"] {
        for entry in fs::read_dir(path.join(".planned").join(inside)).unwrap() {
            let path = entry.unwrap().path();
            let text = fs::read_to_string(&path).unwrap();
            all.push((path, text));
        }
    }
    all.sort();
    all
}

#[test]
fn users_files_stay_and_agents_read_what_is_planned() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("red.yaml"), RED).unwrap();
    let mut directory = open(place.path());
    directory.round(now()).unwrap();
    assert_eq!(address(&directory).as_deref(), Some("10.0.0.4/24"));
    assert_eq!(fs::read_to_string(place.path().join("red.yaml")).unwrap(), RED);
    assert!(is_up_to_date(place.path()));
    let snapshot = DirectorySource::new(place.path()).read().unwrap();
    assert_eq!(snapshot.problems, []);
    let subnet = &snapshot.view.subnets["red"].object;
    assert!(subnet.vni.is_some() && subnet.gateway.as_deref() == Some("10.0.0.1"));
    assert!(snapshot.view.vpcs["red"].object.id.is_some());
    assert_eq!(snapshot.view.route_tables["red"].object.routes.len(), 1);
    let endpoint = snapshot.view.network_endpoint("red", "a.eth0").unwrap();
    let pod = snapshot.view.pod("red", "a").unwrap();
    assert_eq!(endpoint.object.pod.as_ref().unwrap().uid, pod.object.uid);
    // Nothing is left to do, and nothing is written.
    let before = contents(place.path());
    assert_eq!(directory.round(now()).unwrap().changes, 0);
    assert_eq!(contents(place.path()), before);
    fs::write(place.path().join("blue.yaml"), "# nothing\n").unwrap();
    assert!(!is_up_to_date(place.path()));
    directory.round(now()).unwrap();
    assert!(is_up_to_date(place.path()));
}

#[test]
fn a_second_operator_is_kept_out_and_a_later_one_goes_on() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("red.yaml"), RED).unwrap();
    let mut directory = open(place.path());
    directory.round(now()).unwrap();
    assert!(matches!(Directory::open(place.path(), Config::default()), Err(DirectoryError::Locked { .. })));
    let before = contents(place.path());
    drop(directory);
    let mut directory = open(place.path());
    assert_eq!(address(&directory).as_deref(), Some("10.0.0.4/24"));
    directory.round(now()).unwrap();
    assert_eq!(contents(place.path()), before, "a restart writes nothing");
}

#[test]
fn it_can_be_killed_after_any_write() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("red.yaml"), RED).unwrap();
    let mut directory = open(place.path());
    directory.round(now()).unwrap();
    drop(directory);
    let whole = contents(place.path());
    // Each file is missing once, or broken; in the end all is there and the Pod has an address of its Subnet.
    for (missing, _) in &whole {
        for broken in [false, true] {
            for (path, text) in &whole {
                fs::write(path, text).unwrap();
            }
            if broken {
                fs::write(missing, "a: [").unwrap();
            } else {
                fs::remove_file(missing).unwrap();
            }
            let mut directory = open(place.path());
            directory.round(now()).unwrap();
            assert!(address(&directory).is_some_and(|address| address.starts_with("10.0.0.")), "{}", missing.display());
            drop(directory);
            let names: Vec<_> = contents(place.path()).into_iter().map(|(path, _)| path).collect();
            for (path, _) in &whole {
                let lease = path.to_string_lossy().contains("allocationleases");
                assert!(lease || names.contains(path), "{} without {}", path.display(), missing.display());
            }
            for extra in names.iter().filter(|name| !whole.iter().any(|(path, _)| path == *name)) {
                fs::remove_file(extra).unwrap();
            }
        }
    }
}

#[test]
fn what_users_remove_goes_with_all_that_was_planned_for_it() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("red.yaml");
    fs::write(&file, RED).unwrap();
    let mut directory = open(place.path());
    directory.round(now()).unwrap();
    let without = RED.rsplit_once("---").unwrap().0;
    fs::write(&file, without).unwrap();
    directory.round(now()).unwrap();
    assert!(directory.view().network_endpoints.is_empty() && directory.view().network_interfaces.is_empty());
    fs::remove_file(&file).unwrap();
    directory.round(now()).unwrap();
    let later = Timestamp::from_second(now().as_second() + 100).unwrap();
    directory.round(later).unwrap();
    let left: Vec<_> =
        contents(place.path()).into_iter().filter(|(path, _)| path.to_string_lossy().contains("red")).collect();
    assert_eq!(left, []);
}

#[test]
fn a_slip_in_an_editor_changes_nothing() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("red.yaml");
    fs::write(&file, RED).unwrap();
    let mut directory = open(place.path());
    directory.round(now()).unwrap();
    let before = contents(place.path());
    for slip in [format!("{RED}---\na: ["), RED.replace("cidr:", "cird:"), RED.replace("nodeName", "nodName")] {
        fs::write(&file, slip).unwrap();
        let outcome = directory.round(now()).unwrap();
        assert_eq!((outcome.changes, outcome.problems.len()), (0, 1));
        assert_eq!(contents(place.path()), before);
    }
}

#[test]
fn a_user_takes_over_what_was_planned() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("red.yaml"), RED).unwrap();
    let mut directory = open(place.path());
    directory.round(now()).unwrap();
    let table = "
apiVersion: juneau.loutres.me/v1alpha1
kind: RouteTable
metadata: {name: red}
spec: {vpc: red, routes: [{dst: 10.9.0.0/16, via: {type: endpoint, endpointName: a.eth0}}]}
";
    fs::write(place.path().join("table.yaml"), table).unwrap();
    directory.round(now()).unwrap();
    assert!(!place.path().join(".planned/objects/routetables.red.yaml").exists());
    let snapshot = DirectorySource::new(place.path()).read().unwrap();
    assert_eq!(snapshot.view.route_tables["red"].object.routes.len(), 2);
    assert!(snapshot.view.route_tables["red"].object.id.is_some());
    fs::remove_file(place.path().join("table.yaml")).unwrap();
    directory.round(now()).unwrap();
    let snapshot = DirectorySource::new(place.path()).read().unwrap();
    assert_eq!(snapshot.view.route_tables["red"].object.routes.len(), 1);
}

#[test]
fn what_a_hand_changed_in_the_operators_files_is_put_right() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("red.yaml"), RED).unwrap();
    let mut directory = open(place.path());
    directory.round(now()).unwrap();
    let before = contents(place.path());
    let planned = place.path().join(".planned");
    let stranger = planned.join("objects/vpcs.stranger.yaml");
    let (status, nic) =
        (planned.join("status/subnets.red.yaml"), planned.join("objects/networkinterfaces.red.a.eth0.yaml"));
    fs::write(&stranger, "kind: Vpc").unwrap();
    fs::remove_file(&status).unwrap();
    fs::write(&nic, fs::read_to_string(&nic).unwrap().replace("10.0.0.4", "10.0.0.9")).unwrap();
    directory.look_at(&[stranger, status, nic].into()).unwrap();
    directory.round(now()).unwrap();
    assert_eq!(contents(place.path()), before);
    // An endpoint that is removed is made again, with what it had.
    let endpoint = planned.join("objects/networkendpoints.red.a.eth0.yaml");
    fs::remove_file(&endpoint).unwrap();
    directory.look_at(&[endpoint.clone()].into()).unwrap();
    directory.round(now()).unwrap();
    assert!(fs::read_to_string(&endpoint).unwrap().contains("address: 10.0.0.4/24"));
}
