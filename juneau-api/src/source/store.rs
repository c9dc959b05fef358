//! Writing manifests into a directory, as `kubectl apply` and `kubectl delete` do with a cluster.
//!
//! Every file is replaced by a rename, so that a reader sees the old content or the new. An object that stands in a
//! file already is replaced there; a new one gets a file of its own. Other documents of a file, comments among them,
//! stay as they are.

use super::decode::{self, Rejected};
use super::directory::is_manifest;
use super::planned;
use crate::names::bounded;
use crate::view::{Key, Origin};
use juneau_core::model::Problem;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// What became of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is new.
    Created,
    /// It was replaced.
    Configured,
    /// It stood there already as it is.
    Unchanged,
    /// It is gone.
    Deleted,
    /// It was not there.
    NotFound,
}

impl core::fmt::Display for Outcome {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Created => "created",
            Self::Configured => "configured",
            Self::Unchanged => "unchanged",
            Self::Deleted => "deleted",
            Self::NotFound => "not found",
        })
    }
}

/// An object as it stands in the directory.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored {
    /// Which object.
    pub key: Key,
    /// Where it stands.
    pub origin: Origin,
    /// The object.
    pub value: Value,
}

/// Why manifests could not be written or read. Nothing was written then, unless a write itself failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The text is not YAML.
    #[error("not YAML: {0}")]
    Yaml(String),
    /// Objects that cannot be used.
    #[error("{}", problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Refused {
        /// What is wrong with each.
        problems: Vec<Problem>,
    },
    /// The system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

/// A directory of manifests, to write to. One writer at a time.
#[derive(Debug, Clone)]
pub struct Store {
    path: PathBuf,
}

/// One document of a file: its text up to the next separator, and what it holds.
#[derive(Debug, Clone)]
struct Piece {
    text: String,
    content: Content,
}

#[derive(Debug, Clone)]
enum Content {
    /// Nothing but comments.
    Empty,
    /// What cannot be told to be an object; it stays as it is.
    Other,
    Object(Key, Value),
}

impl Store {
    /// The directory at this path.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Writes every object of a YAML text into the directory.
    ///
    /// # Errors
    /// When the text is not YAML, any object of it cannot be used, or a file cannot be written.
    pub fn apply(&self, text: &str) -> Result<Vec<(Key, Outcome)>, StoreError> {
        let wanted = wanted(text, true)?;
        let mut files = self.load()?;
        let mut outcomes = Vec::new();
        for (key, value, body) in wanted {
            let mut outcome = None;
            for file in files.values_mut() {
                for piece in &mut file.pieces {
                    let Content::Object(found, before) = &piece.content else { continue };
                    if *found != key || outcome.is_some() {
                        continue;
                    }
                    if *before == value {
                        outcome = Some(Outcome::Unchanged);
                    } else {
                        *piece = Piece { text: body.clone(), content: Content::Object(key.clone(), value.clone()) };
                        file.changed = true;
                        outcome = Some(Outcome::Configured);
                    }
                }
            }
            if outcome.is_none() {
                let name = free_name(&files, &key);
                let piece = Piece { text: body, content: Content::Object(key.clone(), value) };
                files.insert(name, Pieces { pieces: vec![piece], changed: true });
            }
            outcomes.push((key, outcome.unwrap_or(Outcome::Created)));
        }
        self.save(&files)?;
        Ok(outcomes)
    }

    /// Removes every object that a YAML text names; only kind, namespace and name of it are read.
    ///
    /// # Errors
    /// When the text is not YAML, an object has no name or kind, or a file cannot be written.
    pub fn delete(&self, text: &str) -> Result<Vec<(Key, Outcome)>, StoreError> {
        let keys: Vec<Key> = wanted(text, false)?.into_iter().map(|(key, _, _)| key).collect();
        self.delete_keys(&keys)
    }

    /// Removes objects, wherever they stand. A file without objects is removed with its last one.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn delete_keys(&self, keys: &[Key]) -> Result<Vec<(Key, Outcome)>, StoreError> {
        let mut files = self.load()?;
        let mut outcomes = Vec::new();
        for key in keys {
            let mut outcome = Outcome::NotFound;
            for file in files.values_mut() {
                let before = file.pieces.len();
                file.pieces.retain(|piece| !matches!(&piece.content, Content::Object(found, _) if found == key));
                if file.pieces.len() != before {
                    file.changed = true;
                    outcome = Outcome::Deleted;
                }
            }
            outcomes.push((key.clone(), outcome));
        }
        self.save(&files)?;
        Ok(outcomes)
    }

    /// Every object that stands in the directory, in the order of files and documents.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn get(&self) -> Result<Vec<Stored>, StoreError> {
        let mut all = Vec::new();
        for (path, file) in self.load()? {
            let name: std::sync::Arc<str> = path.display().to_string().into();
            let mut document = 0;
            for piece in file.pieces {
                document += u32::from(!matches!(piece.content, Content::Empty));
                if let Content::Object(key, value) = piece.content {
                    let origin = Origin { file: std::sync::Arc::clone(&name), document };
                    all.push(Stored { key, origin, value });
                }
            }
        }
        Ok(all)
    }

    fn load(&self) -> Result<BTreeMap<PathBuf, Pieces>, StoreError> {
        let mut files = BTreeMap::new();
        let failed = |source| StoreError::Io { path: self.path.clone(), source };
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let name = PathBuf::from(entry.map_err(failed)?.file_name());
            let path = self.path.join(&name);
            if !is_manifest(&name) || !path.is_file() {
                continue;
            }
            let bytes = fs::read(&path).map_err(|source| StoreError::Io { path, source })?;
            // A file that is not even text holds no objects, and is never written.
            let Ok(text) = String::from_utf8(bytes) else { continue };
            files.insert(name, Pieces { pieces: split(&text), changed: false });
        }
        Ok(files)
    }

    fn save(&self, files: &BTreeMap<PathBuf, Pieces>) -> Result<(), StoreError> {
        for (name, file) in files.iter().filter(|(_, file)| file.changed) {
            let path = self.path.join(name);
            if file.pieces.iter().all(|piece| matches!(piece.content, Content::Empty)) {
                fs::remove_file(&path).map_err(|source| StoreError::Io { path, source })?;
            } else {
                let text = file.pieces.iter().map(|piece| piece.text.as_str()).collect::<Vec<_>>().join("---\n");
                write_atomically(&path, text.as_bytes()).map_err(|source| StoreError::Io { path, source })?;
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Pieces {
    pieces: Vec<Piece>,
    changed: bool,
}

/// The objects of a text with their own text.
fn wanted(text: &str, strict: bool) -> Result<Vec<(Key, Value, String)>, StoreError> {
    decode::documents(text).map_err(StoreError::Yaml)?;
    let mut objects = Vec::new();
    let mut problems = Vec::new();
    for piece in split(text) {
        if matches!(piece.content, Content::Empty) {
            continue;
        }
        let values = decode::documents(&piece.text).map_err(StoreError::Yaml)?;
        for value in values {
            let key = if strict { decode::object(value.clone()).map(|(key, _)| key) } else { decode::identify(&value) };
            match key.map_err(|rejected| *rejected) {
                Ok(key) => objects.push((key, value, piece.text.clone())),
                // What is to be removed need not be right.
                Err(Rejected::Object(key, _)) if !strict => objects.push((key, value, piece.text.clone())),
                Err(rejected) => problems.push(rejected.problem().clone()),
            }
        }
    }
    if problems.is_empty() { Ok(objects) } else { Err(StoreError::Refused { problems }) }
}

/// Cuts a text at its document separators. In a manifest, whose top is a mapping, a line that begins with `---` is
/// always one: block scalars are indented.
fn split(text: &str) -> Vec<Piece> {
    let mut texts = vec![String::new()];
    for line in text.split_inclusive('\n') {
        if line.trim_end() == "---" || line.starts_with("--- ") {
            texts.push(line.strip_prefix("--- ").unwrap_or_default().to_owned());
        } else if let Some(last) = texts.last_mut() {
            last.push_str(line);
        }
    }
    let mut pieces: Vec<Piece> = Vec::new();
    for mut text in texts {
        if text.trim().is_empty() {
            continue;
        }
        if !text.ends_with('\n') {
            text.push('\n');
        }
        let content = match decode::documents(&text) {
            Ok(mut values) => match (values.pop(), values.is_empty()) {
                (None, _) => Content::Empty,
                (Some(value), true) => match decode::identify(&value).map_err(|rejected| *rejected) {
                    Ok(key) | Err(Rejected::Object(key, _)) => Content::Object(key, value),
                    Err(_) => Content::Other,
                },
                (Some(_), false) => Content::Other,
            },
            Err(_) => Content::Other,
        };
        pieces.push(Piece { text, content });
    }
    pieces
}

/// A name for an object's own file that no file has.
fn free_name(files: &BTreeMap<PathBuf, Pieces>, key: &Key) -> PathBuf {
    let kind = key.kind.as_str().to_ascii_lowercase();
    let stem = match key.name.namespace.as_str() {
        "" => format!("{kind}.{}", key.name.name),
        namespace => format!("{kind}.{namespace}.{}", key.name.name),
    };
    // With a number behind it, too, it is no longer than a file's name may be.
    let stem = bounded(stem, planned::STEM_MAX - ".4294967295".len());
    let first = PathBuf::from(format!("{stem}.yaml"));
    if !files.contains_key(&first) {
        return first;
    }
    (2_u32..).map(|n| PathBuf::from(format!("{stem}.{n}.yaml"))).find(|name| !files.contains_key(name)).unwrap_or(first)
}

/// Writes a file so that a reader sees the old content or the new, never a part: a temporary file beside it, renamed.
///
/// # Errors
/// The system's.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}", std::process::id()));
    let temporary = path.with_file_name(hidden);
    let written = (|| {
        let mut file = fs::File::create(&temporary)?;
        file.write_all(bytes)?;
        drop(file);
        fs::rename(&temporary, path)
    })();
    if written.is_err() {
        // The first error is the one to tell.
        let _ = fs::remove_file(&temporary);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    const RED: &str = "# The red tenant.\n---\napiVersion: juneau.loutres.me/v1alpha1\nkind: Vpc\nmetadata:\n  name: red # a name\nspec: {}\n---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: red\n";

    fn store() -> (tempfile::TempDir, Store) {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("red.yaml"), RED).unwrap();
        let store = Store::new(directory.path());
        (directory, store)
    }

    fn texts(outcomes: &[(Key, Outcome)]) -> Vec<String> {
        outcomes.iter().map(|(key, outcome)| format!("{key} {outcome}")).collect()
    }

    fn files(directory: &tempfile::TempDir) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(directory).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn objects_of_the_longest_names_have_files_of_their_own() {
        let (directory, store) = store();
        let pod = |last: char| {
            let (name, namespace) = (format!("{}{last}", "p".repeat(252)), "n".repeat(63));
            format!(
                "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec: {{containers: []}}\n"
            )
        };
        for last in ['a', 'b'] {
            assert!(texts(&store.apply(&pod(last)).unwrap())[0].ends_with(" created"));
        }
        assert_eq!(files(&directory).len(), 3, "{:?}", files(&directory));
        assert!(texts(&store.apply(&pod('a')).unwrap())[0].ends_with(" unchanged"));
    }

    #[test]
    fn an_object_is_replaced_where_it_stands_and_the_rest_keeps_its_comments() {
        let (directory, store) = store();
        let vpc =
            "apiVersion: juneau.loutres.me/v1alpha1\nkind: Vpc\nmetadata: {name: red}\nspec: {}\nstatus: {vpcID: 7}\n";
        let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: red}\nspec: {containers: []}\n";
        let outcomes = store.apply(&format!("{vpc}---\n{pod}")).unwrap();
        assert_eq!(texts(&outcomes), ["Vpc/red configured", "Pod/red/a created"]);
        assert_eq!(files(&directory), ["pod.red.a.yaml", "red.yaml"]);
        let text = fs::read_to_string(directory.path().join("red.yaml")).unwrap();
        assert_eq!(
            text,
            RED.replace(
                "metadata:\n  name: red # a name\nspec: {}\n",
                "metadata: {name: red}\nspec: {}\nstatus: {vpcID: 7}\n"
            )
        );
        assert_eq!(texts(&store.apply(vpc).unwrap()), ["Vpc/red unchanged"]);
        let all = store.get().unwrap();
        assert_eq!(
            all.iter().map(|s| s.key.to_string()).collect::<Vec<_>>(),
            ["Pod/red/a", "Vpc/red", "Namespace/red"]
        );
        assert_eq!(all[2].origin.to_string(), "red.yaml, document 2");
    }

    #[test]
    fn a_file_goes_with_its_last_object() {
        let (directory, store) = store();
        let vpc = "apiVersion: juneau.loutres.me/v1alpha1\nkind: Vpc\nmetadata: {name: red}\n";
        assert_eq!(texts(&store.delete(vpc).unwrap()), ["Vpc/red deleted"]);
        assert_eq!(texts(&store.delete(vpc).unwrap()), ["Vpc/red not found"]);
        assert_eq!(files(&directory), ["red.yaml"]);
        store.delete("apiVersion: v1\nkind: Namespace\nmetadata: {name: red}\n").unwrap();
        assert!(files(&directory).is_empty(), "{:?}", files(&directory));
    }

    #[test]
    fn a_bad_object_among_good_ones_writes_nothing() {
        let (directory, store) = store();
        let text = "apiVersion: v1\nkind: Namespace\nmetadata: {name: blue}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\n";
        let error = store.apply(text).unwrap_err();
        assert!(error.to_string().starts_with("Secret/s: kind Secret of v1 is not known"), "{error}");
        assert!(matches!(store.apply("a: ["), Err(StoreError::Yaml(_))));
        assert_eq!(files(&directory), ["red.yaml"]);
        assert_eq!(fs::read_to_string(directory.path().join("red.yaml")).unwrap(), RED);
    }

    #[test]
    fn a_reader_sees_the_old_content_or_the_new() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.yaml");
        let contents = ["old".repeat(100_000), "new".repeat(50_000)];
        write_atomically(&path, contents[0].as_bytes()).unwrap();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for n in 0..50 {
                    write_atomically(&path, contents[n % 2].as_bytes()).unwrap();
                }
            });
            while !writer.is_finished() {
                let seen = fs::read_to_string(&path).unwrap();
                assert!(contents.contains(&seen), "{} bytes", seen.len());
            }
        });
        assert_eq!(files(&directory), ["a.yaml"]);
    }
}
