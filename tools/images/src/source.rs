//! What is built: version, revision and time.

use std::env;
use std::path::Path;
use std::process::Command;

/// Nothing that says when the sources are of.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// Neither a git repository nor the variable.
    #[error("there is no git repository to tell the time of the sources: set SOURCE_DATE_EPOCH")]
    NoTime,
    /// A variable that is no number of seconds.
    #[error("SOURCE_DATE_EPOCH is {value:?}, no number of seconds since 1970")]
    Epoch {
        /// The variable.
        value: String,
    },
}

/// The sources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The workspace's version.
    pub version: String,
    /// The commit, with `-dirty` when files differ from it or are new; none outside a repository.
    pub revision: Option<String>,
    /// When: `SOURCE_DATE_EPOCH`, or the commit's time. Seconds since 1970.
    pub created: u64,
}

impl Source {
    /// Looks at the repository in this directory.
    ///
    /// # Errors
    /// [`SourceError`].
    pub fn find(repository: &Path) -> Result<Self, SourceError> {
        let git = |arguments: &[&str]| {
            let output = Command::new("git")
                .arg("--no-optional-locks")
                .arg("-C")
                .arg(repository)
                .args(arguments)
                .output()
                .ok()?;
            output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        let epoch = env::var("SOURCE_DATE_EPOCH").ok();
        let time = git(&["log", "-1", "--format=%ct"]);
        let revision = git(&["rev-parse", "HEAD"]).map(|revision| {
            let changed = git(&["status", "--porcelain"]).is_none_or(|text| !text.is_empty());
            if changed { format!("{revision}-dirty") } else { revision }
        });
        let created = created(epoch, time)?;
        Ok(Self { version: env!("CARGO_PKG_VERSION").to_owned(), revision, created })
    }
}

fn created(epoch: Option<String>, commit: Option<String>) -> Result<u64, SourceError> {
    match epoch {
        Some(value) => value.parse().map_err(|_| SourceError::Epoch { value }),
        None => commit.and_then(|time| time.parse().ok()).ok_or(SourceError::NoTime),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_wins_over_the_commit() {
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(created(text("5"), text("7")).unwrap(), 5);
        assert_eq!(created(None, text("7")).unwrap(), 7);
        assert!(matches!(created(text("now"), text("7")), Err(SourceError::Epoch { .. })));
        assert!(matches!(created(None, None), Err(SourceError::NoTime)));
    }

    #[test]
    fn a_changed_file_shows_in_the_revision() {
        let place = tempfile::tempdir().unwrap();
        let git = |arguments: &[&str]| {
            let mut command = Command::new("git");
            command.arg("-C").arg(place.path()).args(["-c", "user.name=x", "-c", "user.email=x@example"]);
            command.env("GIT_COMMITTER_DATE", "1700000000 +0000").args(arguments);
            assert!(command.status().unwrap().success(), "{arguments:?}");
        };
        git(&["init", "-q"]);
        std::fs::write(place.path().join("file"), "one").unwrap();
        git(&["add", "file"]);
        git(&["commit", "-q", "-m", "first"]);
        let clean = Source::find(place.path()).unwrap();
        let revision = clean.revision.unwrap();
        assert_eq!(revision.len(), 40);
        if env::var_os("SOURCE_DATE_EPOCH").is_none() {
            assert_eq!(clean.created, 1_700_000_000);
        }
        for (file, content) in [("file", "two"), ("file", "one"), ("new", "one")] {
            std::fs::write(place.path().join(file), content).unwrap();
            let differs = (file, content) != ("file", "one");
            let expected = format!("{revision}{}", if differs { "-dirty" } else { "" });
            assert_eq!(Source::find(place.path()).unwrap().revision, Some(expected), "{file}: {content}");
        }
    }
}
