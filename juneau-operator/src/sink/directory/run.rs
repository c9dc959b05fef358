//! Serving a directory until told to stop.

use super::{Directory, DirectoryError};
use crate::plan::Config;
use core::time::Duration;
use juneau_api::source::planned::DIRECTORY;
use k8s_openapi::jiff::Timestamp;
use notify::{RecursiveMode, Watcher as _};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::mpsc::channel;

/// How long nothing may be heard before the directory is read anyway: events can be lost.
const RESYNC: Duration = Duration::from_secs(60);

/// Serves a directory: reads it whenever it changes, and writes what is planned. Calls `ready` when the first plan is
/// carried out. Returns only with an error.
///
/// # Errors
/// When another operator serves the directory, or it cannot be read, written or followed.
pub fn run(path: &Path, config: Config, ready: impl FnOnce()) -> Result<core::convert::Infallible, DirectoryError> {
    let watch = |source| DirectoryError::Watch { path: path.to_owned(), source };
    let (sender, events) = channel();
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // Reading a file is no change. An error (an overflow) is a reason to look.
        match event {
            Ok(event) if event.kind.is_access() => {}
            Ok(event) => drop(sender.send(event.paths)),
            Err(_) => drop(sender.send(Vec::new())),
        }
    })
    .map_err(watch)?;
    let mut directory = Directory::open(path, config)?;
    // From here on, so that its own directories are there to be followed.
    watcher.watch(path, RecursiveMode::Recursive).map_err(watch)?;
    let mut ready = Some(ready);
    let mut told = BTreeSet::new();
    loop {
        let outcome = directory.round(Timestamp::now())?;
        if outcome.changes > 0 {
            tracing::info!(changes = outcome.changes, "planned");
        }
        let mut lines: BTreeSet<String> = outcome.notices.iter().map(ToString::to_string).collect();
        lines.extend(outcome.problems);
        // Each cause once, as long as it lasts.
        for line in lines.difference(&told) {
            tracing::warn!("{line}");
        }
        told = lines;
        if let Some(ready) = ready.take() {
            ready();
        }
        let until = outcome.wake.map(|wake| wake.duration_since(Timestamp::now()));
        let until = until.map(|until| Duration::try_from(until).unwrap_or_default());
        let patience = until.map_or(RESYNC, |until| until.min(RESYNC));
        // Nothing heard in time is a reason to look as well.
        let mut paths = events.recv_timeout(patience).unwrap_or_default();
        paths.extend(events.try_iter().flatten());
        let own = path.join(DIRECTORY);
        directory.look_at(&paths.into_iter().filter(|path| path.starts_with(&own)).collect())?;
    }
}
