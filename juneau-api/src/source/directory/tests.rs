//! What a reader sees when files come, go and break.

use super::*;

fn vpc(name: &str, id: u32) -> String {
    format!(
        "apiVersion: juneau.loutres.me/v1alpha1\nkind: Vpc\nmetadata:\n  name: {name}\nspec: {{}}\nstatus:\n  vpcID: {id}\n"
    )
}

fn node(name: &str) -> String {
    format!("apiVersion: v1\nkind: Node\nmetadata:\n  name: {name}\n")
}

/// Takes in files and tells VPCs with their ids, nodes, and problems as text.
struct Reader(Directory);

impl Reader {
    fn set(&mut self, file: &str, text: &str) -> (Vec<String>, Vec<String>) {
        self.change(file, Change::Content(text.into()))
    }

    fn change(&mut self, file: &str, change: Change) -> (Vec<String>, Vec<String>) {
        self.0.update(BTreeMap::from([(PathBuf::from(file), change)]));
        let Snapshot { view, problems, .. } = self.0.snapshot();
        let vpcs = view.vpcs.iter().map(|(name, item)| format!("{name}={}", item.object.id.unwrap_or_default()));
        let objects = vpcs.chain(view.nodes.keys().map(ToString::to_string)).collect();
        (objects, problems.iter().map(ToString::to_string).collect())
    }
}

fn reader() -> Reader {
    Reader(Directory::new())
}

#[test]
fn a_file_that_is_not_yaml_keeps_its_last_good_objects() {
    let mut reader = reader();
    let good = format!("{}---\n{}", vpc("red", 2), node("n"));
    assert_eq!(reader.set("a.yaml", &good), (vec!["red=2".into(), "n".into()], vec![]));
    let (objects, problems) = reader.set("a.yaml", "a: [\n");
    assert_eq!(objects, ["red=2", "n"]);
    assert!(problems[0].starts_with("file a.yaml: is not YAML: "), "{problems:?}");
    assert!(problems[0].contains("its last good 2 objects stay in force; mend it at that place"), "{problems:?}");
    assert!(reader.change("a.yaml", Change::Content(vec![0xff, 0xfe])).1[0].contains("is not YAML"));
    assert_eq!(reader.set("a.yaml", "a: [\n"), reader.set("a.yaml", "a: [\n"), "read again");
    assert!(reader.change("a.yaml", Change::Unreadable("denied".into())).1[0].contains("cannot be read: denied"));
    assert!(reader.set("a.yaml", "a: [\n").1[0].contains("is not YAML"), "readable again, though the same as before");
    assert_eq!(reader.set("a.yaml", &vpc("red", 3)), (vec!["red=3".into()], vec![]), "mended");
    assert_eq!(reader.change("a.yaml", Change::Removed), (vec![], vec![]));
}

#[test]
fn a_bad_document_costs_that_object_only() {
    let mut reader = reader();
    reader.set("a.yaml", &format!("{}---\n{}", vpc("red", 2), vpc("blue", 3)));
    let misspelt = vpc("red", 5).replace("vpcID", "vpcId");
    let (objects, problems) = reader.set("a.yaml", &format!("{misspelt}---\n{}", vpc("blue", 4)));
    assert_eq!(objects, ["blue=4", "red=2"]);
    assert_eq!(
        problems,
        ["Vpc/red (a.yaml, document 1): unknown field status.vpcId; the last good version stays in force; \
          remove it, or mend its spelling"]
    );
    let (objects, problems) = reader.set("b.yaml", &misspelt.replace("red", "green"));
    assert_eq!(objects, ["blue=4", "red=2"], "never seen good: not there");
    assert!(problems[1].contains("unknown field") && !problems[1].contains("last good"), "{problems:?}");
    let (objects, _) = reader.set("a.yaml", &vpc("blue", 4));
    assert_eq!(objects, ["blue=4"], "removed, not broken");
}

#[test]
fn a_document_of_unknown_meaning_removes_nothing() {
    let mut reader = reader();
    reader.set("a.yaml", &format!("{}---\n{}", vpc("red", 2), vpc("blue", 3)));
    let (objects, problems) =
        reader.set("a.yaml", &format!("{}---\n{}", vpc("red", 2).replace("Vpc", "Vcp"), vpc("blue", 4)));
    assert_eq!(objects, ["blue=4", "red=2"]);
    assert!(
        problems[0].starts_with("Vcp/red (a.yaml, document 1): kind Vcp of juneau.loutres.me/v1alpha1 is not known")
    );
    let (objects, problems) = reader.set("a.yaml", &format!("kind: Vpc\n---\n{}", vpc("blue", 5)));
    assert_eq!(objects, ["blue=5", "red=2"]);
    assert!(problems[0].contains("has no name"), "{problems:?}");
    let (objects, _) = reader.set("a.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n");
    assert!(objects.is_empty(), "a stranger in the file does not keep what was removed");
}

#[test]
fn of_an_object_in_two_places_the_first_is_in_force() {
    let mut reader = reader();
    reader.set("b.yaml", &vpc("red", 3));
    let (objects, problems) = reader.set("a.yaml", &format!("{}---\n{}", vpc("red", 2), vpc("red", 9)));
    assert_eq!(objects, ["red=2"]);
    assert_eq!(problems.len(), 2);
    assert!(problems[0].starts_with("Vpc/red (a.yaml, document 2): stands in a.yaml, document 1 as well"));
    assert!(problems[1].starts_with("Vpc/red (b.yaml, document 1): stands in a.yaml, document 1 as well"));
    assert!(problems[1].ends_with("remove it from a.yaml or from b.yaml"));
    assert_eq!(reader.change("a.yaml", Change::Removed), (vec!["red=3".into()], vec![]));
}

#[test]
fn the_directory_itself_is_followed() {
    let directory = tempfile::tempdir().unwrap();
    let mut source = DirectorySource::new(directory.path());
    let path = directory.path().join("a.yaml");
    for hidden in [".a.yaml.1", ".b.yaml", "c.yaml~", "README.md"] {
        fs::write(directory.path().join(hidden), vpc("hidden", 9)).unwrap();
    }
    fs::create_dir(directory.path().join("d.yaml")).unwrap();
    assert_eq!(source.read().unwrap(), Snapshot { listed: true, ..Snapshot::default() });
    for id in 2..40 {
        // As fast as it goes: the file's clock may not move in between.
        fs::write(&path, vpc("red", id)).unwrap();
        let snapshot = source.read().unwrap();
        assert_eq!(snapshot.view.vpcs["red"].object.id, Some(id));
        assert_eq!(snapshot.view.len(), 1);
    }
    fs::remove_file(&path).unwrap();
    assert!(source.read().unwrap().view.is_empty());
    drop(directory);
    assert!(matches!(source.read(), Err(SourceError::Directory { .. })));
}

#[test]
fn a_file_that_did_not_change_is_not_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.yaml");
    fs::write(&path, vpc("red", 2)).unwrap();
    let stamp = Stamp::of(&fs::metadata(&path).unwrap());
    let written = SystemTime::UNIX_EPOCH + Duration::from_secs(stamp.changed.0.unsigned_abs());
    assert!(!stamp.is_settled(written + Duration::from_millis(500)));
    assert!(stamp.is_settled(written + Duration::from_secs(5)));
    assert!(read_file(&path, None).unwrap().is_some());
    assert!(read_file(&path, Some(stamp)).unwrap().is_none());
}

#[test]
fn what_was_never_read_well_is_not_known_to_be_absent() {
    let mut reader = reader();
    let unknown = |reader: &Reader| reader.0.snapshot().unknown;
    reader.set("a.yaml", &vpc("red", 2));
    assert_eq!(unknown(&reader), 0);
    reader.set("a.yaml", "a: [\n");
    assert_eq!(unknown(&reader), 0, "the last good version is known");
    reader.set("b.yaml", "a: [\n");
    reader.set("c.yaml", &format!("{}---\n{}", vpc("green", 3), vpc("blue", 4).replace("vpcID", "vpcId")));
    assert_eq!(unknown(&reader), 2);
    reader.set("c.yaml", &vpc("green", 3));
    reader.change("b.yaml", Change::Unreadable("denied".into()));
    assert_eq!(unknown(&reader), 1);
    reader.change("b.yaml", Change::Removed);
    assert_eq!(unknown(&reader), 0);
}
