//! A directory of manifests in the place of an API server: users' files are read, and what the operator has to say stands
//! in `.planned` beside them.

mod planned;
mod run;
mod users;

pub use run::run;

use super::{Objects, objects};
use crate::plan::{Config, Memory, Notice};
use crate::view::{Kind, View};
use core::time::Duration;
use juneau_api::view::ObjectName;
use k8s_openapi::jiff::Timestamp;
use planned::Planned;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use users::Users;

/// Plans in a row before something else is looked at; far more than any change needs.
const ROUNDS: usize = 1000;

/// Why a directory cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// A file or directory cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which one.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Another operator serves the directory.
    #[error("another operator serves {}; stop it first", path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// Changes of the directory cannot be followed.
    #[error("following {}: {source}", path.display())]
    Watch {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: notify::Error,
    },
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> DirectoryError {
    let path = path.to_owned();
    |source| DirectoryError::Io { path, source }
}

/// What became of a round.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    /// Changes that were made.
    pub changes: usize,
    /// What users should hear of.
    pub notices: Vec<Notice>,
    /// What is wrong with files, one line each.
    pub problems: Vec<String>,
    /// When time alone changes something.
    pub wake: Option<Timestamp>,
}

/// A directory that is served.
#[derive(Debug)]
pub struct Directory {
    config: Config,
    objects: Objects,
    users: Users,
    planned: Planned,
    memory: Memory,
}

impl Directory {
    /// Takes a directory over, with what an earlier operator left in `.planned`.
    ///
    /// # Errors
    /// When another operator serves it, or it cannot be read.
    pub fn open(path: impl Into<PathBuf>, config: Config) -> Result<Self, DirectoryError> {
        let path = path.into();
        // Files of one save are seen together, so nothing comes late.
        let config = Config { settle: Duration::ZERO, main_table_grace: Duration::ZERO, ..config };
        let planned = Planned::open(&path)?;
        let mut view = View::default();
        for object in planned.objects() {
            view.insert(object);
        }
        let mut objects = Objects::from(view);
        let mut users = Users::new(path);
        for key in users.read()?.changed {
            if let Some(object) = users.get(&key) {
                let mut object = object.clone();
                if let Some(status) = planned.status(&key) {
                    objects::take_status(&mut object, status);
                }
                objects.put(object);
            }
        }
        Ok(Self { config, objects, users, planned, memory: Memory::default() })
    }

    /// What exists.
    #[must_use]
    pub const fn view(&self) -> &View {
        self.objects.view()
    }

    /// Reads what users changed, and plans until nothing is left to do.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn round(&mut self, now: Timestamp) -> Result<Outcome, DirectoryError> {
        self.take_in()?;
        let mut changes = 0;
        for _ in 0..ROUNDS {
            let plan = self.memory.plan(self.objects.view(), &self.config, now);
            if plan.changes.is_empty() {
                self.planned.keep(|kind, name| self.objects.view().get(kind, name).is_some())?;
                self.planned.seen(self.users.fingerprint())?;
                let problems = self.users.problems();
                return Ok(Outcome { changes, notices: plan.notices, problems, wake: plan.wake });
            }
            for change in &plan.changes {
                let target = change.target();
                match self.objects.apply(change, now) {
                    Ok(_) => changes += 1,
                    Err(refusal) => tracing::debug!("{change}: {refusal}"),
                }
                self.save(target.kind, &target.name)?;
            }
        }
        tracing::error!("{ROUNDS} plans in a row changed something; looking again later");
        Ok(Outcome { changes, ..Outcome::default() })
    }

    /// Looks at files of the operator's that somebody may have changed.
    ///
    /// # Errors
    /// When one cannot be put right.
    pub fn look_at(&mut self, paths: &BTreeSet<PathBuf>) -> Result<(), DirectoryError> {
        for path in paths {
            if let Some((kind, name)) = self.planned.look_at(path)? {
                self.objects.remove(kind, &name);
            }
        }
        Ok(())
    }

    /// Takes in what users changed.
    fn take_in(&mut self) -> Result<(), DirectoryError> {
        let read = self.users.read()?;
        for (kind, name) in read.gone {
            self.objects.remove(kind, &name);
            self.save(kind, &name)?;
        }
        for key in read.changed {
            let Some(object) = self.users.get(&key) else { continue };
            let mut object = object.clone();
            if let Some(before) = self.objects.view().get(key.0, &key.1) {
                objects::take_status(&mut object, &before);
                let (from, to) = (before.metadata(), object.metadata_mut());
                to.finalizers.clone_from(&from.finalizers);
                to.owner_references.clone_from(&from.owner_references);
                to.creation_timestamp.clone_from(&from.creation_timestamp);
                if to.uid.is_none() && !self.planned.has_object(&key) {
                    to.uid.clone_from(&from.uid);
                }
                if objects::has_same_spec(&before, &object) {
                    object.metadata_mut().generation = before.metadata().generation;
                } else {
                    object.metadata_mut().generation = before.metadata().generation.map(|generation| generation + 1);
                }
            }
            self.objects.put(object);
            self.save(key.0, &key.1)?;
        }
        Ok(())
    }

    /// Makes the files of an object what it is now.
    fn save(&mut self, kind: Kind, name: &ObjectName) -> Result<(), DirectoryError> {
        let object = self.objects.view().get(kind, name);
        let of_user = self.users.get(&(kind, name.clone())).is_some();
        self.planned.save(kind, name, object.as_ref(), of_user)
    }
}

/// Which object.
type Key = (Kind, ObjectName);

/// What a read of users' files found.
#[derive(Debug, Default)]
struct Changed {
    changed: BTreeSet<Key>,
    gone: BTreeSet<Key>,
}

#[cfg(test)]
mod tests;
