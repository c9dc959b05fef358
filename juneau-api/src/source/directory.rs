//! A directory of manifests as a source.
//!
//! [`Directory`] is the pure part: contents of files in, a view and problems out. What cannot be read keeps its last
//! good version, so that a slip in an editor moves no packet; a file that is removed takes its objects with it.
//! [`DirectorySource`] is the shell that reads files. Only names that end in `.yaml`, `.yml` or `.json` and do not
//! begin with a dot count, so a writer makes a temporary file `.name` and renames it.

use super::decode::Rejected;
use super::planned::{self, Place};
use crate::view::{Key, Kind, Object, Origin, Part, Text, Texts, View};
use juneau_core::model::Problem;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// What became of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It has this content.
    Content(Vec<u8>),
    /// It is there, but cannot be read, for this reason.
    Unreadable(String),
    /// It is gone.
    Removed,
}

/// What a read yields.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Snapshot {
    /// What exists.
    pub view: View,
    /// What is wrong with files and documents.
    pub problems: Vec<Problem>,
    /// Parts that cannot be read and have no good version from before: what they would say is not known. Nobody should
    /// take an object for removed because it is not here.
    pub unknown: usize,
    /// Whether everything has been listed at least once. Until then, what is not here may only not have been told yet.
    pub listed: bool,
}

/// Files and the objects that they hold.
#[derive(Debug, Clone, Default)]
pub struct Directory {
    files: BTreeMap<PathBuf, File>,
    /// What they say together. A part of it is made anew when a file changed what it says there.
    view: View,
    /// Objects that stand in several files, by part.
    doubles: BTreeMap<Part, Vec<Problem>>,
    texts: Texts,
    hashes: RandomState,
}

/// Which object, in texts that are shared.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Slot {
    kind: Kind,
    namespace: Text,
    name: Text,
}

impl From<&Key> for Slot {
    fn from(key: &Key) -> Self {
        Self { kind: key.kind, namespace: key.name.namespace.as_str().into(), name: key.name.name.as_str().into() }
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/", self.kind)?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

impl Slot {
    /// The part of a view that the object is in.
    fn part(&self) -> Part {
        if self.kind.is_namespaced() { Part::Namespace(Arc::clone(&self.namespace)) } else { Part::Kind(self.kind) }
    }
}

/// Objects, and the document of each.
type Objects = BTreeMap<Slot, (Object, u32)>;

#[derive(Debug, Clone, Default)]
struct File {
    objects: Objects,
    problems: Vec<Problem>,
    /// Documents without any good version; a file that was never read is one.
    unknown: usize,
    /// The file was YAML at least once.
    loaded: bool,
    /// Hash of the content that this is, so that a file that is read again costs nothing.
    content: Option<u64>,
}

impl Directory {
    /// No files.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in what became of some files; the others stay as they are.
    pub fn update(&mut self, changes: BTreeMap<PathBuf, Change>) {
        let mut changed = BTreeSet::new();
        for (path, change) in changes {
            match change {
                Change::Removed => {
                    let file = self.files.remove(&path).unwrap_or_default();
                    changed.extend(file.objects.keys().map(Slot::part));
                }
                Change::Unreadable(reason) => {
                    let name = path.display().to_string();
                    let file = self.files.entry(path).or_default();
                    file.broken(&name, &format!("cannot be read: {reason}"), "make it readable, or remove it");
                    file.content = None;
                }
                Change::Content(bytes) => {
                    let name = path.display().to_string();
                    let content = self.hashes.hash_one(&bytes);
                    let file = self.files.entry(path).or_default();
                    if file.content != Some(content) {
                        file.load(&name, &bytes, &mut self.texts, &mut changed);
                        file.content = Some(content);
                    }
                }
            }
        }
        for part in changed {
            self.renew(part);
        }
        self.texts.tidy();
    }

    /// Makes a part of the view from what the files say. An object that stands in several places is taken from the
    /// first file by name; one of the operator's only where no user has one.
    fn renew(&mut self, part: Part) {
        self.view.clear(&part);
        let mut doubles = Vec::new();
        let of = |place| self.files.iter().filter(move |(path, _)| Place::of(path) == place);
        let statuses: BTreeMap<&Slot, &Object> = of(Place::Status)
            .flat_map(|(_, file)| file.part(&part))
            .map(|(slot, (status, _))| (slot, status))
            .collect();
        for (place, (path, file)) in
            [Place::User, Place::Object].into_iter().flat_map(|place| of(place).map(move |found| (place, found)))
        {
            let mut name: Option<Text> = None;
            for (slot, (object, document)) in file.part(&part) {
                let name = name.get_or_insert_with(|| path.display().to_string().into());
                let origin = Origin { file: Arc::clone(name), document: *document };
                let completed = match (place, statuses.get(slot)) {
                    (Place::User, Some(status)) => Some(planned::with_status(object, status)),
                    _ => None,
                };
                let object = completed.as_ref().unwrap_or(object);
                if let Err(first) = self.view.put(&slot.namespace, &slot.name, object, origin.clone())
                    && place == Place::User
                {
                    doubles.push(
                        Problem::new(
                            slot.to_string(),
                            format!("stands in {first} as well, which is the one in force"),
                            format!("remove it from {} or from {}", first.file, origin.file),
                        )
                        .at(origin.to_string()),
                    );
                }
            }
        }
        if doubles.is_empty() {
            self.doubles.remove(&part);
        } else {
            self.doubles.insert(part, doubles);
        }
    }

    /// What exists, and what is wrong.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let of_files = self.files.values().flat_map(|file| &file.problems);
        Snapshot {
            view: self.view.clone(),
            problems: of_files.chain(self.doubles.values().flatten()).cloned().collect(),
            unknown: self.files.values().map(|file| file.unknown).sum(),
            listed: true,
        }
    }
}

impl File {
    /// Its objects of one part of a view.
    fn part(&self, part: &Part) -> impl Iterator<Item = (&Slot, &(Object, u32))> {
        let kinds = Kind::ALL.into_iter().filter(move |kind| match part {
            Part::Kind(wanted) => kind == wanted,
            Part::Namespace(_) => kind.is_namespaced(),
        });
        let namespace: Text = match part {
            Part::Kind(_) => Text::default(),
            Part::Namespace(name) => Arc::clone(name),
        };
        kinds.flat_map(move |kind| {
            let first = Slot { kind, namespace: Arc::clone(&namespace), name: Text::default() };
            let namespace = Arc::clone(&namespace);
            let objects = self.objects.range(first..);
            objects.take_while(move |(slot, _)| slot.kind == kind && slot.namespace == namespace)
        })
    }

    /// All that was good stays.
    fn broken(&mut self, name: &str, message: &str, remedy: &str) {
        if !self.loaded {
            self.unknown = 1;
        }
        let kept = match self.objects.len() {
            0 => String::new(),
            1 => "; its last good object stays in force".to_owned(),
            count => format!("; its last good {count} objects stay in force"),
        };
        self.problems = vec![Problem::new(format!("file {name}"), format!("{message}{kept}"), remedy)];
    }

    /// Takes in a new content. Parts of the view that it may change are added to `changed`.
    fn load(&mut self, name: &str, bytes: &[u8], texts: &mut Texts, changed: &mut BTreeSet<Part>) {
        let place = Place::of(Path::new(name));
        let text = std::str::from_utf8(bytes).map_err(|error| error.to_string());
        let documents = text.and_then(|text| place.read(text));
        let documents = match documents {
            Ok(documents) => documents,
            Err(error) => {
                self.broken(name, &format!("is not YAML: {error}"), "mend it at that place");
                return;
            }
        };
        let file: Arc<str> = name.into();
        let before = std::mem::take(&mut self.objects);
        let mut last_good = before.clone();
        self.problems.clear();
        self.unknown = 0;
        self.loaded = true;
        let mut rejected = Vec::new();
        for (index, decoded) in documents.into_iter().enumerate() {
            let document = u32::try_from(index + 1).unwrap_or(u32::MAX);
            let origin = Origin { file: Arc::clone(&file), document };
            match decoded {
                Ok((key, object)) => {
                    let mut object = planned::with_uid(&key, object);
                    let mut slot = Slot::from(&key);
                    texts.share(&mut slot.namespace);
                    texts.share(&mut slot.name);
                    match self.objects.entry(slot) {
                        std::collections::btree_map::Entry::Vacant(free) => {
                            // What is equal stays the same, so that nobody looks at it again.
                            match before.get(free.key()) {
                                Some((same, _)) if *same == object => object = same.clone(),
                                _ => object.share(texts),
                            }
                            free.insert((object, document));
                        }
                        std::collections::btree_map::Entry::Occupied(first) => self.problems.push(
                            Problem::new(
                                first.key().to_string(),
                                format!(
                                    "stands in {file}, document {} as well, which is the one in force",
                                    first.get().1
                                ),
                                "remove one of the two",
                            )
                            .at(origin.to_string()),
                        ),
                    }
                }
                Err(reason) => rejected.push((reason, origin)),
            }
        }
        // A good document of the same object ends the wait for the broken one, wherever in the file it stands.
        last_good.retain(|slot, _| !self.objects.contains_key(slot));
        for (mut reason, origin) in rejected {
            let waiting = last_good.len();
            match &*reason {
                Rejected::Object(key, _) => self.objects.extend(last_good.remove_entry(&Slot::from(key))),
                Rejected::Kind(name, _) => {
                    let is_meant = |slot: &&Slot| *slot.namespace == *name.namespace && *slot.name == *name.name;
                    let slots: Vec<Slot> = last_good.keys().filter(is_meant).cloned().collect();
                    self.objects.extend(slots.iter().filter_map(|slot| last_good.remove_entry(slot)));
                }
                Rejected::Document(_) => self.objects.append(&mut last_good),
            }
            let problem = reason.problem_mut();
            match waiting.saturating_sub(last_good.len()) {
                0 => self.unknown += 1,
                1 => problem.message.push_str("; the last good version stays in force"),
                count => problem.message.push_str(&format!("; {count} objects of the file stay as they were")),
            }
            problem.origin = origin.to_string();
            self.problems.push(problem.clone());
        }
        let differing = |of: &Objects, other: &Objects| -> Vec<Part> {
            of.iter().filter(|(slot, stored)| other.get(*slot) != Some(stored)).map(|(slot, _)| slot.part()).collect()
        };
        changed.extend(differing(&before, &self.objects));
        changed.extend(differing(&self.objects, &before));
    }
}

/// Why a directory could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The directory itself.
    #[error("directory {}: {source}", path.display())]
    Directory {
        /// Which one.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

/// What tells that a file is the one that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(metadata: &fs::Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// A file's clock is coarse: a file that changed just before it was read may have changed again without a trace.
    fn is_settled(&self, read_at: SystemTime) -> bool {
        const COARSE: Duration = Duration::from_secs(1);
        let Ok(seconds) = u64::try_from(self.changed.0) else { return false };
        read_at
            .duration_since(SystemTime::UNIX_EPOCH)
            .is_ok_and(|now| now > Duration::from_secs(seconds) + COARSE + COARSE)
    }
}

/// Reads a directory, again and again.
#[derive(Debug)]
pub struct DirectorySource {
    path: PathBuf,
    directory: Directory,
    /// Files that were read, with their stamp if it can be relied on.
    seen: BTreeMap<PathBuf, Option<Stamp>>,
}

impl DirectorySource {
    /// A source over this directory; nothing is read yet.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), directory: Directory::new(), seen: BTreeMap::new() }
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads what changed since the last time.
    ///
    /// # Errors
    /// When the directory itself cannot be listed; what was read before stays. A file that cannot be read is a problem
    /// in the snapshot.
    pub fn read(&mut self) -> Result<Snapshot, SourceError> {
        let failed = |source| SourceError::Directory { path: self.path.clone(), source };
        let now = SystemTime::now();
        let mut seen = BTreeMap::new();
        let mut changes = BTreeMap::new();
        let mut names = planned::files(&self.path);
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let name = PathBuf::from(entry.map_err(failed)?.file_name());
            if is_manifest(&name) {
                names.push(name);
            }
        }
        for name in names {
            match read_file(&self.path.join(&name), self.seen.get(&name).copied().flatten()) {
                Ok(Some((stamp, bytes))) => {
                    seen.insert(name.clone(), Some(stamp).filter(|stamp| stamp.is_settled(now)));
                    changes.insert(name, Change::Content(bytes));
                }
                Ok(None) => {
                    let stamp = self.seen.get(&name).copied().flatten();
                    seen.insert(name, stamp);
                }
                // Removed or renamed since the listing.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // A directory, pipe or device with such a name is none of ours.
                Err(error) if error.kind() == io::ErrorKind::IsADirectory => {}
                Err(error) => {
                    seen.insert(name.clone(), None);
                    changes.insert(name, Change::Unreadable(error.to_string()));
                }
            }
        }
        for name in self.seen.keys().filter(|name| !seen.contains_key(*name)) {
            changes.insert(name.clone(), Change::Removed);
        }
        self.seen = seen;
        self.directory.update(changes);
        Ok(self.directory.snapshot())
    }
}

/// Whether a file of this name is read.
#[must_use]
pub fn is_manifest(name: &Path) -> bool {
    let visible = name.file_name().is_some_and(|name| !name.as_encoded_bytes().starts_with(b"."));
    visible && name.extension().is_some_and(|end| end == "yaml" || end == "yml" || end == "json")
}

/// The content, or nothing if the file is the one that was read before.
fn read_file(path: &Path, before: Option<Stamp>) -> io::Result<Option<(Stamp, Vec<u8>)>> {
    use std::io::Read as _;
    // Opening a pipe would wait for its writer.
    if !fs::metadata(path)?.is_file() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let mut file = fs::File::open(path)?;
    let metadata = file.metadata()?;
    let stamp = Stamp::of(&metadata);
    if before == Some(stamp) {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(Some((stamp, bytes)))
}

#[cfg(test)]
mod tests;
