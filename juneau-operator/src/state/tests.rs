use super::*;
use serde_json::json;

fn vpc(name: &str, uid: &str, version: u64) -> Object {
    let document = json!({"metadata": {"name": name, "uid": uid, "resourceVersion": version.to_string()}, "spec": {}});
    Object::from_json(Kind::Vpc, document).unwrap()
}

fn name(name: &str) -> ObjectName {
    ObjectName::new("", name)
}

fn broken(uid: &str) -> Undecodable {
    Undecodable { uid: uid.into(), resource_version: "9".into(), error: "no".into(), kept: false }
}

fn known(state: &State) -> Vec<(String, String)> {
    state.read(|view| {
        let version = |vpc: &juneau_api::kinds::Vpc| vpc.metadata.resource_version.clone().unwrap();
        view.vpcs.iter().map(|(name, vpc)| (name.clone(), version(vpc))).collect()
    })
}

#[test]
fn what_a_list_does_not_name_is_gone() {
    let state = State::new([Kind::Vpc]);
    let changes = state.changes();
    state.handle(Event::Begin(Kind::Vpc));
    assert!(state.handle(Event::Found(vpc("a", "1", 1))) && state.handle(Event::Found(vpc("b", "2", 2))));
    assert!(!state.is_synced());
    assert!(state.handle(Event::End(Kind::Vpc)));
    assert!(state.is_synced() && changes.has_changed().unwrap());

    // While a list is read nothing is missing.
    state.handle(Event::Begin(Kind::Vpc));
    assert!(!state.handle(Event::Found(vpc("b", "2", 2))), "nothing changed");
    assert_eq!(known(&state).len(), 2);
    assert!(state.handle(Event::End(Kind::Vpc)));
    assert_eq!(known(&state), [("b".to_owned(), "2".to_owned())]);
}

#[test]
fn an_older_version_does_not_replace_a_newer_one() {
    let state = State::new([]);
    state.handle(Event::Found(vpc("a", "1", 12)));
    assert!(!state.handle(Event::Found(vpc("a", "1", 9))));
    assert_eq!(known(&state), [("a".to_owned(), "12".to_owned())]);
    // Another object of the same name is never older.
    assert!(state.handle(Event::Found(vpc("a", "2", 3))));
    assert!(!state.handle(Event::Gone(Kind::Vpc, name("a"), "1".into())), "that was the one before");
    assert!(state.handle(Event::Gone(Kind::Vpc, name("a"), "2".into())));
    assert!(known(&state).is_empty());
}

#[test]
fn what_a_write_answered_is_no_news_when_the_watch_tells_it() {
    let document = |managers: serde_json::Value| {
        let metadata = json!({"name": "a", "uid": "1", "resourceVersion": "7", "managedFields": managers});
        Object::from_json(Kind::Vpc, json!({"metadata": metadata, "spec": {}})).unwrap()
    };
    let managers = json!([{"manager": "juneau-operator", "operation": "Update", "fieldsV1": {"f:spec": {}}}]);
    for (answered, watched) in [(managers.clone(), json!(null)), (json!(null), managers)] {
        let state = State::new([]);
        assert!(state.handle(Event::Found(document(answered))));
        assert!(!state.handle(Event::Found(document(watched))), "a reason to plan again");
        state.read(|view| assert!(view.vpcs["a"].metadata.managed_fields.is_none(), "half of its size"));
    }
    // A version is what it is, whoever tells of it.
    let state = State::new([]);
    state.handle(Event::Found(vpc("a", "1", 7)));
    let mut other = vpc("a", "1", 7);
    other.metadata_mut().labels = Some([("color".to_owned(), "red".to_owned())].into());
    assert!(!state.handle(Event::Found(other)));
}

#[test]
fn what_cannot_be_decoded_keeps_its_last_good_version_and_nothing_else() {
    let state = State::new([]);
    state.handle(Event::Found(vpc("a", "1", 1)));
    assert!(state.handle(Event::Broken(Kind::Vpc, name("a"), broken("1"))));
    assert!(!state.handle(Event::Broken(Kind::Vpc, name("a"), broken("1"))), "told twice");
    assert_eq!(known(&state).len(), 1);
    assert!(state.undecodable()[&(Kind::Vpc, name("a"))].kept);
    // A new object of that name has no good version.
    assert!(state.handle(Event::Broken(Kind::Vpc, name("a"), broken("2"))));
    assert!(known(&state).is_empty() && !state.undecodable()[&(Kind::Vpc, name("a"))].kept);
    // It is mended.
    assert!(state.handle(Event::Found(vpc("a", "2", 10))));
    assert!(state.undecodable().is_empty() && known(&state).len() == 1);
    // It is gone, as a list tells.
    state.handle(Event::Broken(Kind::Vpc, name("a"), broken("2")));
    state.handle(Event::Begin(Kind::Vpc));
    assert!(state.handle(Event::End(Kind::Vpc)));
    assert!(state.undecodable().is_empty() && known(&state).is_empty());
}

#[test]
fn what_an_address_is_kept_for_exists_until_the_opposite_is_known() {
    let state = State::new([]);
    let lease = |version: &str| {
        let document = json!({
            "metadata": {"name": "l", "uid": "1", "resourceVersion": version},
            "spec": {"poolRef": {"name": "p"}, "claimRef": {"name": "c"}, "value": {"ip": "10.0.1.4"}, "retainWhile": {
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "namespace": "red", "name": "vm"}},
        });
        Event::Found(Object::from_json(Kind::AllocationLease, document).unwrap())
    };
    state.handle(lease("1"));
    let wish = state.read(|view| view.retaining.first().cloned()).unwrap();
    state.retain(&wish, false);
    state.handle(lease("2"));
    assert!(state.read(|view| view.retaining.is_empty()));
    state.retain(&wish, true);
    assert!(state.read(|view| view.retaining.contains(&wish)));
}

#[test]
fn nothing_is_kept_of_what_no_lease_names_any_more() {
    let state = State::new([]);
    let lease = |name: &str, version: u64, machine: Option<&str>| {
        let keep = machine.map(|machine| {
            json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "namespace": "red", "name": machine})
        });
        let spec =
            json!({"poolRef": {"name": "p"}, "claimRef": {"name": "c"}, "value": {"number": 1}, "retainWhile": keep});
        let metadata = json!({"name": name, "uid": name, "resourceVersion": version.to_string()});
        Object::from_json(Kind::AllocationLease, json!({"metadata": metadata, "spec": spec})).unwrap()
    };
    let found = |name, version, machine| state.handle(Event::Found(lease(name, version, machine)));
    let known = || {
        let inner = state.inner.read().unwrap();
        (inner.gone.len(), inner.view.retaining.len(), inner.wishes.len())
    };
    found("a", 1, Some("vm"));
    found("b", 2, Some("vm"));
    let wish = state.read(|view| view.retaining.first().cloned()).unwrap();
    state.retain(&wish, false);
    assert_eq!(known(), (1, 0, 1));
    found("a", 3, Some("vm"));
    assert_eq!(known(), (1, 0, 1), "another version of a lease asks nothing anew");
    state.handle(Event::Gone(Kind::AllocationLease, name("a"), "a".into()));
    assert_eq!(known(), (1, 0, 1), "the other one still names it");
    found("b", 4, Some("other"));
    assert_eq!(known(), (0, 1, 1));
    found("b", 5, None);
    assert_eq!(known(), (0, 0, 0));
    // An answer that comes when nobody asks any more.
    state.retain(&wish, false);
    assert_eq!(known(), (0, 0, 0));
}

#[test]
fn what_is_not_listed_yet_says_why() {
    let state = State::new([Kind::Vpc, Kind::Subnet]);
    state.failed(Kind::Vpc, "no way there");
    state.failed(Kind::Pod, "nobody waits for it");
    let unsynced = [(Kind::Vpc, Some("no way there".to_owned())), (Kind::Subnet, None)];
    assert_eq!(state.unsynced(), BTreeMap::from(unsynced));
    for kind in [Kind::Vpc, Kind::Subnet] {
        state.handle(Event::Begin(kind));
        state.handle(Event::End(kind));
    }
    state.failed(Kind::Vpc, "no way there");
    assert!(state.is_synced() && state.unsynced().is_empty());
}

#[test]
fn an_answer_that_comes_late_brings_nothing_back() {
    let state = State::new([]);
    state.handle(Event::Found(vpc("a", "1", 1)));
    assert!(state.handle(Event::Gone(Kind::Vpc, name("a"), "1".into())));
    // The answer to the write that took the last finalizer away.
    assert!(!state.handle(Event::Found(vpc("a", "1", 2))));
    assert!(known(&state).is_empty());
    // One of the same name is another one.
    assert!(state.handle(Event::Found(vpc("a", "2", 3))));
}

fn lease(uid: &str, version: u64, mark: Option<&str>) -> Object {
    let spec = json!({"poolRef": {"name": "p"}, "value": {"number": 1}, "claimRef": {"name": "c", "uid": "c"},
        "ownerDeletionTimestamp": mark});
    let metadata = json!({"name": "l", "uid": uid, "resourceVersion": version.to_string()});
    Object::from_json(Kind::AllocationLease, json!({"metadata": metadata, "spec": spec})).unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_is_seen_is_dated_by_the_clock_of_who_sees_it() {
    use std::time::Duration;
    use tokio::time::advance;
    let state = State::new([Kind::Vpc]);
    state.handle(Event::Found(vpc("old", "1", 1)));
    advance(Duration::from_secs(7)).await;
    state.handle(Event::End(Kind::Vpc));
    advance(Duration::from_secs(5)).await;
    state.handle(Event::Found(vpc("new", "2", 2)));
    state.handle(Event::Found(lease("3", 3, Some("2020-01-01T00:00:00Z"))));
    advance(Duration::from_secs(4)).await;
    // Another version of an object is not another object, and the same mark not another mark.
    state.handle(Event::Found(vpc("new", "2", 4)));
    state.handle(Event::Found(lease("3", 5, Some("2020-01-01T00:00:00Z"))));
    let now = Timestamp::from_second(1_000_000).unwrap();
    let ages = |state: &State| {
        let sightings = state.view(now).sightings.unwrap();
        [sightings.object("1"), sightings.object("2"), sightings.mark("3")]
            .map(|seen| now.as_second() - seen.as_second())
    };
    assert_eq!(ages(&state), [9, 4, 4]);
    state.handle(Event::Found(lease("3", 6, Some("2030-01-01T00:00:00Z"))));
    assert_eq!(ages(&state), [9, 4, 0]);
    // What came long ago is as old as the rest.
    advance(Duration::from_secs(60)).await;
    state.handle(Event::Found(vpc("newer", "4", 7)));
    assert_eq!(ages(&state), [69, 69, 60]);
}
