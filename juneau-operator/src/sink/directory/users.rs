//! Users' files: read, never written. What cannot be read keeps its last good version, as it does for the agents.

use super::{Changed, DirectoryError, Key, failed};
use crate::view::{Kind, Object};
use juneau_api::source::decode::{self, Rejected};
use juneau_api::source::directory::is_manifest;
use juneau_api::source::planned::{fingerprint, stable_uid};
use juneau_api::view::ObjectName;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// What users wrote.
#[derive(Debug)]
pub(super) struct Users {
    path: PathBuf,
    files: BTreeMap<PathBuf, File>,
    objects: BTreeMap<Key, Object>,
}

#[derive(Debug, Default)]
struct File {
    content: Vec<u8>,
    /// That is what stands there now.
    is_read: bool,
    objects: BTreeMap<Key, Object>,
    problems: Vec<String>,
}

impl Users {
    pub(super) const fn new(path: PathBuf) -> Self {
        Self { path, files: BTreeMap::new(), objects: BTreeMap::new() }
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Object> {
        self.objects.get(key)
    }

    /// What tells this content of the files from another.
    pub(super) fn fingerprint(&self) -> String {
        let files = self.files.iter().filter(|(_, file)| file.is_read);
        fingerprint(files.map(|(name, file)| (name.as_path(), file.content.as_slice())))
    }

    pub(super) fn problems(&self) -> Vec<String> {
        self.files.values().flat_map(|file| &file.problems).cloned().collect()
    }

    /// Reads the files. An object that stands in several is taken from the first by name.
    pub(super) fn read(&mut self) -> Result<Changed, DirectoryError> {
        let mut seen = BTreeSet::new();
        for entry in fs::read_dir(&self.path).map_err(failed(&self.path))? {
            let name = PathBuf::from(entry.map_err(failed(&self.path))?.file_name());
            let path = self.path.join(&name);
            // Opening a pipe would wait for its writer.
            if !is_manifest(&name) || !path.is_file() {
                continue;
            }
            let read = fs::read(&path);
            let file = self.files.entry(name.clone()).or_default();
            file.is_read = read.is_ok();
            match read {
                Ok(content) if content == file.content => {}
                Ok(content) => file.load(&name, content),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => file.problems = vec![format!("file {}: cannot be read: {error}", name.display())],
            }
            seen.insert(name);
        }
        self.files.retain(|name, _| seen.contains(name));
        let mut objects: BTreeMap<Key, Object> = BTreeMap::new();
        for file in self.files.values() {
            for (key, object) in &file.objects {
                objects.entry(key.clone()).or_insert_with(|| object.clone());
            }
        }
        let gone = self.objects.keys().filter(|key| !objects.contains_key(*key)).cloned().collect();
        let changed = objects.iter().filter(|(key, object)| self.objects.get(*key) != Some(object));
        let changed = changed.map(|(key, _)| key.clone()).collect();
        self.objects = objects;
        Ok(Changed { changed, gone })
    }
}

impl File {
    fn load(&mut self, name: &Path, content: Vec<u8>) {
        let documents = std::str::from_utf8(&content).map_err(|error| error.to_string()).and_then(decode::documents);
        self.content.clone_from(&content);
        let documents = match documents {
            Ok(documents) => documents,
            Err(error) => {
                self.problems = vec![format!("file {}: is not YAML: {error}", name.display())];
                return;
            }
        };
        let mut before = std::mem::take(&mut self.objects);
        self.problems.clear();
        for document in documents {
            match object(document) {
                Ok(Some((key, object))) => drop(self.objects.entry(key).or_insert(object)),
                Ok(None) => {}
                Err(rejected) => {
                    self.problems.push(rejected.problem().to_string());
                    match *rejected {
                        Rejected::Object(key, _) => {
                            let kind = Kind::ALL.into_iter().find(|kind| kind.as_str() == key.kind.as_str());
                            let key = kind.map(|kind| (kind, key.name));
                            self.objects.extend(key.and_then(|key| before.remove_entry(&key)));
                        }
                        Rejected::Kind(..) => {}
                        // It may be any of them.
                        Rejected::Document(_) => {
                            for (key, object) in std::mem::take(&mut before) {
                                self.objects.entry(key).or_insert(object);
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A user's object; nothing for one of a kind that only the agents read. It must be one that the agents take as well, who
/// are strict about fields that they do not know.
fn object(mut document: Value) -> Result<Option<(Key, Object)>, Box<Rejected>> {
    let (key, _) = decode::object(document.clone())?;
    if let Some(metadata) = document.get_mut("metadata").and_then(Value::as_object_mut) {
        if !key.name.namespace.is_empty() {
            metadata.insert("namespace".to_owned(), key.name.namespace.clone().into());
        }
        let uid = stable_uid(key.kind.as_str(), &key.name.namespace, &key.name.name);
        metadata.entry("uid").or_insert(Value::String(uid));
    }
    let invalid = |message: String| {
        let problem = juneau_core::model::Problem::new(key.to_string(), message, "mend it");
        Box::new(Rejected::Object(key.clone(), problem))
    };
    let kind = Kind::ALL.into_iter().find(|kind| kind.as_str() == key.kind.as_str());
    let Some(kind) = kind else { return Ok(None) };
    let object = Object::from_json(kind, document).map_err(|error| invalid(error.to_string()))?;
    Ok(Some(((kind, ObjectName::new(key.name.namespace.as_str(), key.name.name.as_str())), object)))
}
