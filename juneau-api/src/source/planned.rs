//! What the operator writes beside users' manifests: the directory `.planned`.
//!
//! `objects/` holds the objects that it makes, one in a file; `status/` holds statuses of objects that users wrote, whose
//! files it never touches. Each file is replaced whole, so that a reader sees the old or the new.

use super::decode::{self, Read};
use super::store::Stored;
use crate::view::{Key, Kind, Object, Origin};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The directory, in that of the manifests.
pub const DIRECTORY: &str = ".planned";
/// Objects of the operator's, in [`DIRECTORY`].
pub const OBJECTS: &str = "objects";
/// Statuses of users' objects, in [`DIRECTORY`].
pub const STATUS: &str = "status";

/// The file of an object: `subnets.red-a.yaml`, `networkinterfaces.red.a1.eth0.yaml`. A name that is too long for a file
/// is cut and told apart by a hash.
#[must_use]
pub fn file_name(plural: &str, namespace: &str, name: &str) -> String {
    let stem = match namespace {
        "" => format!("{plural}.{name}"),
        namespace => format!("{plural}.{namespace}.{name}"),
    };
    if stem.len() <= STEM_MAX {
        return format!("{stem}.yaml");
    }
    // Kinds have names of their own, and a namespace has no dot: the hash tells everything apart.
    let hash = uuid(&[&stem]);
    let mut end = STEM_MAX - 1 - hash.len();
    while !stem.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}~{hash}.yaml", &stem[..end])
}

/// Longest name of a file without `.yaml`, in bytes: 255 less what is put around it while the file is written.
pub(super) const STEM_MAX: usize = 255 - ".yaml".len() - "..".len() - 10;

/// The uid of an object that was written without one: always the same for the same kind and name. In the form of a UUID
/// (RFC 9562, version 8).
#[must_use]
pub fn stable_uid(kind: &str, namespace: &str, name: &str) -> String {
    uuid(&[kind, namespace, name])
}

/// A hash of some texts in the form of a UUID.
#[must_use]
pub fn uuid(parts: &[&str]) -> String {
    let digest = Sha256::digest(parts.join("\0").as_bytes());
    let mut bytes = [0; 16];
    for (byte, random) in bytes.iter_mut().zip(digest.iter()) {
        *byte = *random;
    }
    bytes[6] = (bytes[6] & 0x0f) | 0x80;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let text = bytes.map(|byte| format!("{byte:02x}")).concat();
    format!("{}-{}-{}-{}-{}", &text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..])
}

/// In [`DIRECTORY`]: the [`fingerprint`] of the manifests that everything there was planned from.
pub const SEEN: &str = "seen";

/// What tells one content of a directory of manifests from another: a hash of the names and contents of its files.
#[must_use]
pub fn fingerprint<'f>(files: impl IntoIterator<Item = (&'f Path, &'f [u8])>) -> String {
    let mut hash = Sha256::new();
    for (name, content) in files {
        for part in [name.as_os_str().as_encoded_bytes(), content] {
            hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            hash.update(part);
        }
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether an operator has planned from the manifests as they are now. False as well where there is none.
#[must_use]
pub fn is_up_to_date(directory: &Path) -> bool {
    let mut files = std::collections::BTreeMap::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let (name, path) = (PathBuf::from(entry.file_name()), entry.path());
        if super::directory::is_manifest(&name)
            && path.is_file()
            && let Ok(content) = std::fs::read(path)
        {
            files.insert(name, content);
        }
    }
    let now = fingerprint(files.iter().map(|(name, content)| (name.as_path(), content.as_slice())));
    std::fs::read_to_string(directory.join(DIRECTORY).join(SEEN)).is_ok_and(|seen| seen.trim_end() == now)
}

/// Whose file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// A user's manifests.
    User,
    /// An object of the operator's.
    Object,
    /// The status of a user's object.
    Status,
}

impl Place {
    /// The place of a file that is named from the directory of manifests on.
    pub(super) fn of(path: &Path) -> Self {
        if path.starts_with(Path::new(DIRECTORY).join(STATUS)) {
            Self::Status
        } else if path.starts_with(DIRECTORY) {
            Self::Object
        } else {
            Self::User
        }
    }

    /// Reads the documents of a file.
    pub(super) fn read(self, text: &str) -> Result<Vec<Read>, String> {
        match self {
            Self::User | Self::Object => decode::objects(text),
            Self::Status => Ok(decode::documents(text)?.into_iter().map(status).collect()),
        }
    }
}

/// A status as an object with nothing else in it.
fn status(mut document: Value) -> Read {
    let spec = match decode::identify(&document)?.kind {
        Kind::Subnet => json!({"vpc": "", "cidr": ""}),
        Kind::RouteTable => json!({"vpc": ""}),
        _ => json!({}),
    };
    if let Some(document) = document.as_object_mut() {
        document.insert("spec".to_owned(), spec);
    }
    decode::object(document)
}

/// A user's object with the status that the operator gave it.
pub(super) fn with_status(object: &Object, status: &Object) -> Object {
    match (object, status) {
        (Object::Vpc(object), Object::Vpc(status)) => {
            let mut object = object.as_ref().clone();
            object.id = status.id;
            object.main_route_table.clone_from(&status.main_route_table);
            Object::Vpc(Arc::new(object))
        }
        (Object::Subnet(object), Object::Subnet(status)) => {
            let mut object = object.as_ref().clone();
            object.vni = status.vni;
            object.gateway.clone_from(&status.gateway);
            object.gateway_mac.clone_from(&status.gateway_mac);
            Object::Subnet(Arc::new(object))
        }
        (Object::RouteTable(object), Object::RouteTable(status)) => {
            let mut object = object.as_ref().clone();
            object.id = status.id;
            object.routes.clone_from(&status.routes);
            Object::RouteTable(Arc::new(object))
        }
        _ => object.clone(),
    }
}

/// Gives a user's Pod its uid, if it was written without.
pub(super) fn with_uid(key: &Key, object: Object) -> Object {
    match object {
        Object::Pod(pod) if pod.uid.is_empty() => {
            let mut pod = Arc::unwrap_or_clone(pod);
            pod.uid = stable_uid(Kind::Pod.as_str(), &key.name.namespace, &key.name.name).into();
            Object::Pod(Arc::new(pod))
        }
        object => object,
    }
}

/// The operator's files that a source over this directory reads, named from the directory on. Kinds that no view holds
/// are left out.
pub(super) fn files(directory: &Path) -> Vec<PathBuf> {
    let known = |name: &str| {
        let plural = name.split('.').next().unwrap_or_default();
        name.ends_with(".yaml")
            && Kind::ALL.into_iter().any(|kind| plural == format!("{}s", kind.as_str().to_ascii_lowercase()))
    };
    let mut files = Vec::new();
    for place in [OBJECTS, STATUS] {
        let inside = Path::new(DIRECTORY).join(place);
        // Where no operator was, there is no such directory.
        for entry in std::fs::read_dir(directory.join(&inside)).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if name.to_str().is_some_and(known) {
                files.push(inside.join(name));
            }
        }
    }
    files
}

/// Users' objects with the statuses that the operator gave them, and the operator's own. Files that cannot be read are
/// left out, and so are kinds that no view holds.
#[must_use]
pub fn completed(directory: &Path, mut users: Vec<Stored>) -> Vec<Stored> {
    for path in files(directory) {
        let Ok(text) = std::fs::read_to_string(directory.join(&path)) else { continue };
        let Some(value) = decode::documents(&text).ok().and_then(|mut documents| documents.pop()) else { continue };
        let Ok(key) = decode::identify(&value) else { continue };
        let known = users.iter_mut().find(|stored| stored.key == key);
        match (Place::of(&path), known) {
            (Place::Status, Some(stored)) => {
                if let (Some(object), Some(status)) = (stored.value.as_object_mut(), value.get("status")) {
                    object.insert("status".to_owned(), status.clone());
                }
            }
            (Place::Object, None) => {
                let origin = Origin { file: path.display().to_string().into(), document: 1 };
                users.push(Stored { key, origin, value });
            }
            _ => {}
        }
    }
    users
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_are_uuids_and_stay() {
        let uid = stable_uid("Pod", "red", "a");
        assert_eq!(uid, stable_uid("Pod", "red", "a"));
        assert_ne!(uid, stable_uid("Pod", "re", "da"));
        let parts: Vec<usize> = uid.split('-').map(str::len).collect();
        assert_eq!((parts, uid.as_bytes()[14]), (vec![8, 4, 4, 4, 12], b'8'));
    }

    #[test]
    fn a_file_tells_its_place() {
        assert_eq!(Place::of(Path::new("red.yaml")), Place::User);
        assert_eq!(Place::of(Path::new(".planned/objects/pods.red.a.yaml")), Place::Object);
        assert_eq!(Place::of(Path::new(".planned/status/vpcs.red.yaml")), Place::Status);
        assert_eq!(file_name("vpcs", "", "red"), "vpcs.red.yaml");
        assert_eq!(file_name("pods", "red", "a"), "pods.red.a.yaml");
        let long = |last: char| file_name("networkinterfaces", &"n".repeat(63), &format!("{}{last}", "p".repeat(252)));
        assert!(long('a').len() <= 238 + ".yaml".len() && long('a').ends_with(".yaml"), "{}", long('a'));
        assert_ne!(long('a'), long('b'));
    }
}
