//! The operator's own files.

use super::{DirectoryError, Key, failed};
use crate::sink::objects;
use crate::view::{Kind, Object};
use juneau_api::source::decode;
use juneau_api::source::planned::{DIRECTORY, OBJECTS, SEEN, STATUS, file_name};
use juneau_api::source::store::write_atomically;
use juneau_api::view::ObjectName;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// The file that keeps a second operator out.
const LOCK: &str = "lock";

/// The operator's files, as they were written last.
#[derive(Debug)]
pub(super) struct Planned {
    path: PathBuf,
    /// Objects by key, with the content of their file.
    objects: BTreeMap<Key, (Object, String)>,
    statuses: BTreeMap<Key, (Object, String)>,
    /// Objects by the name of their file.
    names: BTreeMap<String, Key>,
    /// The fingerprint that was said last.
    seen: String,
    /// Held as long as the directory is served; the kernel lets it go with the process.
    _lock: File,
}

impl Planned {
    /// Reads the files that an earlier operator left. One that cannot be read is removed: all of it can be planned again,
    /// and addresses are in several.
    pub(super) fn open(manifests: &Path) -> Result<Self, DirectoryError> {
        let path = manifests.join(DIRECTORY);
        for inside in [OBJECTS, STATUS] {
            let inside = path.join(inside);
            fs::create_dir_all(&inside).map_err(failed(&inside))?;
        }
        let lock_path = path.join(LOCK);
        let lock = File::create(&lock_path).map_err(failed(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(DirectoryError::Locked { path: manifests.to_owned() }),
            Err(TryLockError::Error(source)) => return Err(DirectoryError::Io { path: lock_path, source }),
        }
        let seen = fs::read_to_string(path.join(SEEN)).unwrap_or_default().trim_end().to_owned();
        let objects = read_all(&path.join(OBJECTS), false)?;
        let statuses = read_all(&path.join(STATUS), true)?;
        let keys = objects.keys().chain(statuses.keys());
        let names = keys.map(|key| (file_name(key.0.plural(), &key.1.namespace, &key.1.name), key.clone())).collect();
        Ok(Self { path, objects, statuses, names, seen, _lock: lock })
    }

    pub(super) fn objects(&self) -> impl Iterator<Item = Object> {
        self.objects.values().map(|(object, _)| object.clone())
    }

    pub(super) fn status(&self, key: &Key) -> Option<&Object> {
        self.statuses.get(key).map(|(object, _)| object)
    }

    pub(super) fn has_object(&self, key: &Key) -> bool {
        self.objects.contains_key(key)
    }

    /// Makes the files of one object what it is: a whole object, or the status alone if a user wrote the object.
    pub(super) fn save(
        &mut self,
        kind: Kind,
        name: &ObjectName,
        object: Option<&Object>,
        of_user: bool,
    ) -> Result<(), DirectoryError> {
        let value = object.and_then(objects::to_json);
        let (whole, status) = match (&value, of_user) {
            (None, _) => (None, None),
            (Some(value), false) => (Some(value.clone()), None),
            (Some(value), true) => (None, status_of(value)),
        };
        let key = (kind, name.clone());
        let file = file_name(kind.plural(), &name.namespace, &name.name);
        for (inside, files, value) in [(OBJECTS, &mut self.objects, whole), (STATUS, &mut self.statuses, status)] {
            let path = self.path.join(inside).join(&file);
            match (value, object) {
                (Some(value), Some(object)) => {
                    let text = text(&value);
                    if files.get(&key).is_none_or(|(_, before)| *before != text) {
                        write_atomically(&path, text.as_bytes()).map_err(failed(&path))?;
                    }
                    files.insert(key.clone(), (object.clone(), text));
                    self.names.insert(file.clone(), key.clone());
                }
                _ => {
                    if files.remove(&key).is_some() {
                        remove(&path)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Looks at a file that somebody may have changed: what an operator wrote is written again, what it did not write is
    /// removed. Of an object whose file was removed, its key is returned: the object counts as gone.
    pub(super) fn look_at(&mut self, path: &Path) -> Result<Option<Key>, DirectoryError> {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return Ok(None) };
        let is_status = match path.parent().and_then(Path::file_name) {
            Some(inside) if inside == OBJECTS => false,
            Some(inside) if inside == STATUS => true,
            _ => return Ok(None),
        };
        // A file in the making.
        if name.starts_with('.') {
            return Ok(None);
        }
        let files = if is_status { &self.statuses } else { &self.objects };
        let key = self.names.get(name).filter(|key| files.contains_key(*key)).cloned();
        let wanted = key.as_ref().and_then(|key| files.get(key)).map(|(_, text)| text);
        match (fs::read(path), wanted) {
            (Ok(there), Some(wanted)) if there == wanted.as_bytes() => Ok(None),
            (Err(error), Some(_)) if error.kind() == io::ErrorKind::NotFound && !is_status => {
                tracing::warn!("{} was removed by somebody", path.display());
                if let Some(key) = &key {
                    self.objects.remove(key);
                }
                Ok(key)
            }
            (_, Some(wanted)) => {
                tracing::warn!("{} was changed by somebody; it is put right", path.display());
                write_atomically(path, wanted.as_bytes()).map_err(failed(path))?;
                Ok(None)
            }
            (Ok(_), None) => {
                tracing::warn!("{} is not what an operator wrote; it is removed", path.display());
                remove(path)?;
                Ok(None)
            }
            (Err(_), None) => Ok(None),
        }
    }

    /// Says which manifests all that stands here was planned from.
    pub(super) fn seen(&mut self, fingerprint: String) -> Result<(), DirectoryError> {
        if self.seen != fingerprint {
            let path = self.path.join(SEEN);
            write_atomically(&path, format!("{fingerprint}\n").as_bytes()).map_err(failed(&path))?;
            self.seen = fingerprint;
        }
        Ok(())
    }

    /// Removes the files of objects that are not there any more.
    pub(super) fn keep(&mut self, is_there: impl Fn(Kind, &ObjectName) -> bool) -> Result<(), DirectoryError> {
        for (inside, files) in [(OBJECTS, &mut self.objects), (STATUS, &mut self.statuses)] {
            let gone: Vec<Key> = files.keys().filter(|(kind, name)| !is_there(*kind, name)).cloned().collect();
            for key in gone {
                files.remove(&key);
                remove(&self.path.join(inside).join(file_name(key.0.plural(), &key.1.namespace, &key.1.name)))?;
            }
        }
        Ok(())
    }
}

/// The status of an object as a document of its own, if it has one.
fn status_of(value: &Value) -> Option<Value> {
    let status = value.get("status").filter(|status| !status.is_null())?;
    let metadata = &value["metadata"];
    let mut named = json!({"name": metadata["name"]});
    if let Some(namespace) = metadata.get("namespace").filter(|namespace| !namespace.is_null()) {
        named["namespace"] = namespace.clone();
    }
    Some(json!({"apiVersion": value["apiVersion"], "kind": value["kind"], "metadata": named, "status": status}))
}

/// As YAML; JSON is YAML as well.
fn text(value: &Value) -> String {
    let mut text = serde_saphyr::to_string(value).unwrap_or_else(|_| value.to_string());
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

fn remove(path: &Path) -> Result<(), DirectoryError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(path)(error)),
        _ => Ok(()),
    }
}

fn read_all(directory: &Path, status_only: bool) -> Result<BTreeMap<Key, (Object, String)>, DirectoryError> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(directory).map_err(failed(directory))? {
        let path = entry.map_err(failed(directory))?.path();
        let text = fs::read_to_string(&path).unwrap_or_default();
        match read(&text, status_only) {
            Some(object) if path.file_name().is_some_and(|name| name == file_of(&object).as_str()) => {
                all.insert((object.kind(), object.name()), (object, text));
            }
            _ => {
                tracing::warn!("{} is not what an operator wrote; it is removed", path.display());
                remove(&path)?;
            }
        }
    }
    Ok(all)
}

fn file_of(object: &Object) -> String {
    let name = object.name();
    file_name(object.kind().plural(), &name.namespace, &name.name)
}

fn read(text: &str, status_only: bool) -> Option<Object> {
    let mut value = decode::documents(text).ok()?.pop()?;
    let kind = Kind::ALL.into_iter().find(|kind| value.get("kind").is_some_and(|text| text == kind.as_str()))?;
    if status_only {
        value["spec"] = match kind {
            Kind::Subnet => json!({"vpc": "", "cidr": ""}),
            Kind::RouteTable => json!({"vpc": ""}),
            _ => json!({}),
        };
    }
    Object::from_json(kind, value).ok()
}
