//! The archive: files in the order of their names, each and all of them bounded.

use crate::error::CliError;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// The directory in which everything lies.
const TOP: &str = "juneau-support";
/// So many bytes a file.
const FILE: usize = 16 << 20;
/// So many bytes together.
const ALL: usize = 256 << 20;

/// Files by their names, and what could not be had.
#[derive(Debug, Default)]
pub struct Archive {
    files: BTreeMap<String, Vec<u8>>,
    size: usize,
    errors: Vec<String>,
}

impl Archive {
    /// Puts a file in. What is too long is cut, and that is noted.
    pub fn put(&mut self, name: impl Into<String>, mut content: Vec<u8>) {
        let name = name.into();
        let room = FILE.min(ALL.saturating_sub(self.size));
        if content.len() > room {
            self.error(&name, format_args!("it has {} bytes; only the first {room} are here", content.len()));
            content.truncate(room);
        }
        self.size += content.len();
        self.files.insert(name, content);
    }

    /// Notes what could not be had, and why.
    pub fn error(&mut self, name: &str, why: impl std::fmt::Display) {
        self.errors.push(format!("{name}: {why}"));
    }

    /// What could not be had, in order.
    #[must_use]
    pub fn errors(&self) -> &[String] {
        &self.errors
    }

    /// The archive's bytes, with this time in seconds since 1970 for every file.
    ///
    /// # Errors
    /// None that memory does not give.
    pub fn bytes(mut self, time: u64) -> io::Result<Vec<u8>> {
        self.errors.sort();
        if !self.errors.is_empty() {
            self.files.insert("errors.txt".to_owned(), (self.errors.join("\n") + "\n").into_bytes());
        }
        let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
        for (name, content) in &self.files {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o600);
            header.set_mtime(time);
            builder.append_data(&mut header, format!("{TOP}/{name}"), content.as_slice())?;
        }
        builder.into_inner()?.finish()
    }
}

/// Writes a file that only its owner reads: complete or not at all.
///
/// # Errors
/// [`CliError::Output`].
pub fn write(path: &Path, content: &[u8]) -> Result<(), CliError> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".unfinished");
    let unfinished = Path::new(&unfinished);
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(unfinished)?;
        file.write_all(content)?;
        file.sync_all()?;
        std::fs::rename(unfinished, path)
    })();
    written.map_err(|error| {
        let _ = std::fs::remove_file(unfinished);
        CliError::Output { why: format!("{}: {error}", path.display()) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;

    #[test]
    fn files_come_in_order_and_what_is_missing_is_named() {
        let mut archive = Archive::default();
        archive.put("logs/b", b"b".to_vec());
        archive.error("logs/c", "it was not there");
        archive.put("a.json", b"{}".to_vec());
        archive.put("long", vec![b'x'; FILE + 1]);
        let bytes = archive.bytes(1_800_000_000).unwrap();
        let mut read = tar::Archive::new(GzDecoder::new(bytes.as_slice()));
        let found: Vec<(String, u64)> = read
            .entries()
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.path().unwrap().display().to_string(), entry.size()))
            .collect();
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            ["juneau-support/a.json", "juneau-support/errors.txt", "juneau-support/logs/b", "juneau-support/long"]
        );
        assert_eq!(found[3].1, FILE as u64);
    }
}
