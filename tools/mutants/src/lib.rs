//! Planted faults: a file in `tests/mutants/` names one place in the sources and what stands there instead.
//!
//! ```text
//! # why this would be bad
//! file bpf-src/lib/emit.h
//! -the text that stands there, once
//! +the text that takes its place
//! ```
//!
//! Several `-` or `+` lines are one text of several lines.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod run;

use std::path::{Path, PathBuf};

/// Why a fault cannot be planted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A line that the format does not know.
    #[error("{path}:{line}: a line begins with '#', 'file ', '-' or '+'", path = path.display())]
    Line {
        /// The mutant.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
    },
    /// No `file` or no `-` line.
    #[error("{path}: names no file, or no text to replace", path = path.display())]
    Incomplete {
        /// The mutant.
        path: PathBuf,
    },
    /// The text to replace stands there not once.
    #[error("{path}: its text stands {count} times in {file}, not once: bring the mutant up to date", path = path.display(), file = file.display())]
    NotOnce {
        /// The mutant.
        path: PathBuf,
        /// The source.
        file: PathBuf,
        /// How often.
        count: usize,
    },
    /// A file or a program could not be used.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
}

impl Error {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}

/// A fault to plant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mutant {
    /// Name: that of its file.
    pub name: String,
    /// Where it is described.
    pub path: PathBuf,
    /// Why it would be bad.
    pub why: String,
    /// The source that it changes, relative to the repository.
    pub file: PathBuf,
    /// What stands there.
    pub before: String,
    /// What takes its place.
    pub after: String,
}

impl Mutant {
    /// Reads the description of a fault.
    ///
    /// # Errors
    /// [`Error::Line`], [`Error::Incomplete`].
    pub fn parse(path: &Path, text: &str) -> Result<Self, Error> {
        let (mut why, mut file) = (String::new(), None);
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for (index, line) in text.lines().enumerate() {
            if let Some(rest) = line.strip_prefix('#') {
                rest.trim().clone_into(&mut why);
            } else if let Some(rest) = line.strip_prefix("file ") {
                file = Some(PathBuf::from(rest.trim()));
            } else if let Some(rest) = line.strip_prefix('-') {
                before.push(rest);
            } else if let Some(rest) = line.strip_prefix('+') {
                after.push(rest);
            } else {
                return Err(Error::Line { path: path.to_owned(), line: index + 1 });
            }
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        match file {
            Some(file) if !before.is_empty() => {
                Ok(Self { name, path: path.to_owned(), why, file, before: before.join("\n"), after: after.join("\n") })
            }
            _ => Err(Error::Incomplete { path: path.to_owned() }),
        }
    }

    /// Every fault that is described in a directory, by name.
    ///
    /// # Errors
    /// [`Error::Io`], and those of [`Mutant::parse`].
    pub fn read_all(directory: &Path) -> Result<Vec<Self>, Error> {
        let mut mutants = Vec::new();
        let name = || directory.display().to_string();
        for entry in std::fs::read_dir(directory).map_err(Error::io(name()))? {
            let path = entry.map_err(Error::io(name()))?.path();
            if path.extension().is_some_and(|extension| extension == "mutant") {
                let text = std::fs::read_to_string(&path).map_err(Error::io(path.display().to_string()))?;
                mutants.push(Self::parse(&path, &text)?);
            }
        }
        mutants.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(mutants)
    }

    /// The source with the fault in it.
    ///
    /// # Errors
    /// [`Error::NotOnce`].
    pub fn plant(&self, source: &str) -> Result<String, Error> {
        match source.matches(&self.before).count() {
            1 => Ok(source.replacen(&self.before, &self.after, 1)),
            count => Err(Error::NotOnce { path: self.path.clone(), file: self.file.clone(), count }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# off by one\nfile src/a.rs\n-a < b\n+a <= b\n";

    #[test]
    fn a_fault_is_planted_where_its_text_stands_once() {
        let mutant = Mutant::parse(Path::new("tests/mutants/bound.mutant"), TEXT).unwrap();
        assert_eq!((mutant.name.as_str(), mutant.why.as_str()), ("bound", "off by one"));
        assert_eq!(mutant.plant("if a < b {}").unwrap(), "if a <= b {}");
        assert!(matches!(mutant.plant("if b {}"), Err(Error::NotOnce { count: 0, .. })));
        assert!(matches!(mutant.plant("a < b; a < b"), Err(Error::NotOnce { count: 2, .. })));
    }

    #[test]
    fn a_broken_description_is_named() {
        let path = Path::new("x.mutant");
        assert!(matches!(Mutant::parse(path, "? what"), Err(Error::Line { line: 1, .. })));
        assert!(matches!(Mutant::parse(path, "file a\n+b"), Err(Error::Incomplete { .. })));
    }

    /// Sources change; a fault that can no longer be planted proves nothing.
    #[test]
    fn every_mutant_can_be_planted() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mutants = Mutant::read_all(&root.join("tests/mutants")).unwrap();
        for kind in ["c-", "rust-"] {
            let count = mutants.iter().filter(|mutant| mutant.name.starts_with(kind)).count();
            assert!(count >= 12, "{count} mutants {kind}*");
        }
        for mutant in mutants {
            let source = std::fs::read_to_string(root.join(&mutant.file)).unwrap();
            let planted = mutant.plant(&source).unwrap();
            assert_ne!(planted, source, "{}", mutant.name);
        }
    }
}
