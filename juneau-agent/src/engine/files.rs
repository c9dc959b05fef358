//! Tells when manifests changed.

use juneau_api::source::directory::is_manifest;
use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};
use std::path::{Path, PathBuf};
use tokio::sync::mpsc;

/// Watches a directory by inotify. Events are hints: a lost one is found by the next comparison.
pub(crate) struct Files {
    path: PathBuf,
    watcher: RecommendedWatcher,
    watching: bool,
}

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Files").field("path", &self.path).field("watching", &self.watching).finish_non_exhaustive()
    }
}

impl Files {
    /// Sends on `changes` after manifests in `path` changed.
    ///
    /// # Errors
    /// When inotify has no room for one more instance.
    pub(super) fn new(path: &Path, changes: mpsc::Sender<()>) -> Result<Self, notify::Error> {
        let watcher = notify::recommended_watcher(move |event: Result<Event, notify::Error>| {
            if event.as_ref().map_or(true, concerns_us) {
                // A full channel holds an event already; a closed one has nobody to tell.
                let _ = changes.try_send(());
            }
        })?;
        Ok(Self { path: path.to_owned(), watcher, watching: false })
    }

    /// Tries again where watching has failed before.
    pub(super) fn renew_if_lost(&mut self) {
        if !self.watching {
            self.renew();
        }
    }

    /// Watches the directory that is at the path now: another one may have been put there.
    pub(super) fn renew(&mut self) {
        if self.watching {
            // An error means that the watched directory is gone already.
            let _ = self.watcher.unwatch(&self.path);
        }
        self.watching = match self.watcher.watch(&self.path, RecursiveMode::Recursive) {
            Ok(()) => true,
            // Reading the directory names it in a problem.
            Err(error) => {
                tracing::debug!(%error, "cannot watch {}", self.path.display());
                false
            }
        };
    }
}

/// Whether an event may mean another content: not our own reading, nor a writer's temporary file.
fn concerns_us(event: &Event) -> bool {
    let change = match event.kind {
        EventKind::Access(kind) => kind == AccessKind::Close(AccessMode::Write),
        _ => true,
    };
    change && (event.need_rescan() || event.paths.is_empty() || event.paths.iter().any(|path| is_interesting(path)))
}

fn is_interesting(path: &Path) -> bool {
    // The directory itself has no such ending; its own end and beginning concern us.
    is_manifest(path) || path.extension().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn change(directory: &Path, work: impl FnOnce(&Path)) -> bool {
        let (sender, mut changes) = mpsc::channel(1);
        let mut files = Files::new(directory, sender).unwrap();
        files.renew();
        work(directory);
        tokio::time::timeout(std::time::Duration::from_millis(300), changes.recv()).await.is_ok()
    }

    #[tokio::test]
    async fn manifests_count_and_temporary_files_do_not() {
        let directory = std::env::temp_dir().join(format!("juneau-files-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        assert!(!change(&directory, |d| std::fs::write(d.join(".a.yaml"), "x").unwrap()).await);
        assert!(change(&directory, |d| std::fs::rename(d.join(".a.yaml"), d.join("a.yaml")).unwrap()).await);
        assert!(!change(&directory, |d| drop(std::fs::read(d.join("a.yaml")).unwrap())).await);
        assert!(change(&directory, |d| std::fs::write(d.join("a.yaml"), "y").unwrap()).await);
        assert!(change(&directory, |d| std::fs::remove_file(d.join("a.yaml")).unwrap()).await);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
