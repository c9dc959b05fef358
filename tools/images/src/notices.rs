//! The licences and notices of everything in an image that is not ours, in one text.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Something in an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Name and version.
    pub name: String,
    /// SPDX expression, if it names one.
    pub licence: Option<String>,
    /// Files with licences and notices that came with it: names and texts.
    pub files: Vec<(String, String)>,
}

/// A file that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
#[non_exhaustive]
pub struct NoticeError {
    /// The file or directory.
    pub path: PathBuf,
    /// What the kernel said.
    pub source: io::Error,
}

/// Beginnings of the names that such files have.
const NAMES: [&str; 6] = ["license", "licence", "copying", "copyright", "notice", "unlicense"];

/// The licences and notices that lie in a directory of sources, sorted by name.
///
/// # Errors
/// [`NoticeError`].
pub fn find(directory: &Path) -> Result<Vec<(String, String)>, NoticeError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| NoticeError { path, source }
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed(directory))? {
        let path = entry.map_err(failed(directory))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_one = NAMES.iter().any(|beginning| name.to_lowercase().starts_with(beginning));
        // Sources of a module may have such a name as well.
        if is_one && !name.ends_with(".rs") && path.is_file() {
            let text = fs::read(&path).map_err(failed(&path))?;
            found.push((name, String::from_utf8_lossy(&text).into_owned()));
        }
    }
    found.sort();
    Ok(found)
}

/// One text: who is in the image under which licence, and each text once, with whose it is.
#[must_use]
pub fn text(parts: &[Part]) -> String {
    let mut whole = "This image contains the following software of others.\n\n".to_owned();
    let mut texts: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for part in parts {
        whole += &format!("{}: {}\n", part.name, part.licence.as_deref().unwrap_or("see its notice below"));
        for (name, text) in &part.files {
            texts.entry(text.trim()).or_default().push(format!("{} ({name})", part.name));
        }
    }
    // In the order in which they are first mentioned, not in that of their words.
    let mut sections: Vec<_> = texts.into_iter().collect();
    sections.sort_by(|(_, one), (_, other)| one.cmp(other));
    for (text, whose) in sections {
        whole += &format!("\n{}\n{}\n\n{text}\n", "=".repeat(72), whose.join("\n"));
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_there_once() {
        let file = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        let parts = [
            Part {
                name: "a 1".to_owned(),
                licence: Some("MIT".to_owned()),
                files: vec![file("LICENSE", "Of both.\n")],
            },
            Part {
                name: "b 2".to_owned(),
                licence: None,
                files: vec![file("COPYING", "Own."), file("x", "\nOf both.")],
            },
            Part { name: "c 3".to_owned(), licence: Some("Zlib".to_owned()), files: Vec::new() },
        ];
        let text = text(&parts);
        assert_eq!(text.matches("Of both.").count(), 1);
        assert!(text.contains("a 1 (LICENSE)\nb 2 (x)\n\nOf both.\n"), "{text}");
        assert!(text.contains("b 2 (COPYING)\n\nOwn.\n"), "{text}");
        for line in ["a 1: MIT\n", "b 2: see its notice below\n", "c 3: Zlib\n"] {
            assert!(text.contains(line), "{line}");
        }
    }

    #[test]
    fn files_are_known_by_their_names() {
        let place = tempfile::tempdir().unwrap();
        for name in ["LICENSE-MIT", "license-apache", "COPYING", "NOTICE.md", "README.md", "license.rs", "src"] {
            fs::write(place.path().join(name), name).unwrap();
        }
        fs::create_dir(place.path().join("LICENSES")).unwrap();
        let names: Vec<_> = find(place.path()).unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["COPYING", "LICENSE-MIT", "NOTICE.md", "license-apache"]);
        assert!(find(&place.path().join("absent")).is_err());
    }
}
