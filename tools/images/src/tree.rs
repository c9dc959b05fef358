//! The files of an image, and the tar file that a layer is.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;

/// A path that an image cannot have.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TreeError {
    /// Paths are relative to the image's root, without `.` and `..`, and without a slash at the end.
    #[error("{path:?} is not a path below an image's root")]
    Path {
        /// The path.
        path: String,
    },
    /// Two things at one path, or something below what is no directory.
    #[error("{path} is in the image twice, or lies in something that is no directory")]
    Taken {
        /// The path.
        path: String,
    },
    /// A path or a link's target is too long for a tar header, or a file too large.
    #[error("{path} does not fit into a tar header: {source}")]
    Header {
        /// The path.
        path: String,
        /// What the writer said.
        source: io::Error,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    Directory { mode: u32 },
    File { mode: u32, content: Vec<u8> },
    Link { target: String },
}

/// Files, directories and symbolic links below an image's root; all of them root's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree {
    nodes: BTreeMap<String, Node>,
}

impl Tree {
    /// A directory with these permissions. Directories above it come by themselves, with 0755.
    ///
    /// # Errors
    /// [`TreeError::Path`], [`TreeError::Taken`].
    pub fn directory(&mut self, path: &str, mode: u32) -> Result<(), TreeError> {
        self.insert(path, Node::Directory { mode })
    }

    /// A file with these permissions.
    ///
    /// # Errors
    /// [`TreeError::Path`], [`TreeError::Taken`].
    pub fn file(&mut self, path: &str, mode: u32, content: impl Into<Vec<u8>>) -> Result<(), TreeError> {
        self.insert(path, Node::File { mode, content: content.into() })
    }

    /// A symbolic link.
    ///
    /// # Errors
    /// [`TreeError::Path`], [`TreeError::Taken`].
    pub fn link(&mut self, path: &str, target: &str) -> Result<(), TreeError> {
        self.insert(path, Node::Link { target: target.to_owned() })
    }

    fn insert(&mut self, path: &str, node: Node) -> Result<(), TreeError> {
        if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(TreeError::Path { path: path.to_owned() });
        }
        let taken = || TreeError::Taken { path: path.to_owned() };
        for (at, _) in path.match_indices('/') {
            let above = self.nodes.entry(path[..at].to_owned()).or_insert(Node::Directory { mode: 0o755 });
            if !matches!(above, Node::Directory { .. }) {
                return Err(taken());
            }
        }
        match self.nodes.entry(path.to_owned()) {
            Entry::Vacant(place) => {
                place.insert(node);
            }
            // It may have come by itself before, or be said twice.
            Entry::Occupied(mut place)
                if matches!((place.get(), &node), (Node::Directory { .. }, Node::Directory { .. })) =>
            {
                place.insert(node);
            }
            Entry::Occupied(_) => return Err(taken()),
        }
        Ok(())
    }

    /// Whether a directory is at this path, given as within a container: with a slash before it.
    #[must_use]
    pub fn has_directory(&self, path: &str) -> bool {
        matches!(self.nodes.get(path.trim_start_matches('/')), Some(Node::Directory { .. }))
    }

    /// The content of the file at this path, given as within a container.
    #[must_use]
    pub fn content(&self, path: &str) -> Option<&[u8]> {
        match self.nodes.get(path.trim_start_matches('/')) {
            Some(Node::File { content, .. }) => Some(content),
            _ => None,
        }
    }

    /// Bytes of all files.
    #[must_use]
    pub fn size(&self) -> usize {
        self.nodes.values().map(|node| if let Node::File { content, .. } = node { content.len() } else { 0 }).sum()
    }

    /// The tar file: sorted by path, everything root's and of one time (seconds since 1970).
    ///
    /// # Errors
    /// [`TreeError::Header`].
    pub fn pack(&self, time: u64) -> Result<Vec<u8>, TreeError> {
        let mut builder = tar::Builder::new(Vec::new());
        let failed = |path: &str| {
            let path = path.to_owned();
            move |source| TreeError::Header { path, source }
        };
        for (path, node) in &self.nodes {
            let (kind, mode, content) = match node {
                Node::Directory { mode } => (tar::EntryType::Directory, *mode, &[][..]),
                Node::File { mode, content } => (tar::EntryType::Regular, *mode, content.as_slice()),
                Node::Link { .. } => (tar::EntryType::Symlink, 0o777, &[][..]),
            };
            let mut header = header(kind, mode, content.len(), time);
            // Directories are written with a slash at the end, as all writers do.
            let slash = if kind.is_dir() { "/" } else { "" };
            header.set_path(format!("{path}{slash}")).map_err(failed(path))?;
            if let Node::Link { target } = node {
                header.set_link_name(target).map_err(failed(path))?;
            }
            header.set_cksum();
            builder.append(&header, content).map_err(failed(path))?;
        }
        builder.into_inner().map_err(failed("/"))
    }
}

/// A header without a name: everything that could differ from one machine or day to another is fixed.
pub(crate) fn header(kind: tar::EntryType, mode: u32, size: usize, time: u64) -> tar::Header {
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(size as u64);
    header.set_mtime(time);
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    fn tree() -> Tree {
        let mut tree = Tree::default();
        tree.link("var/run", "../run").unwrap();
        tree.file("usr/bin/program", 0o755, "text").unwrap();
        tree.directory("tmp", 0o1777).unwrap();
        tree
    }

    #[test]
    fn headers_say_nothing_of_the_machine() {
        let packed = tree().pack(1_700_000_000).unwrap();
        let mut archive = tar::Archive::new(packed.as_slice());
        let mut seen = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let header = entry.header().clone();
            assert_eq!((header.uid().unwrap(), header.gid().unwrap()), (0, 0));
            assert_eq!(header.mtime().unwrap(), 1_700_000_000);
            assert_eq!((header.username(), header.groupname()), (Ok(Some("")), Ok(Some(""))));
            assert_eq!(header.as_ustar().unwrap().magic, *b"ustar\0");
            let mut content = String::new();
            entry.read_to_string(&mut content).unwrap();
            let link = entry.link_name().unwrap().map(|target| target.display().to_string());
            let path = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
            seen.push((path, header.mode().unwrap(), link.unwrap_or(content)));
        }
        let expected = [
            ("tmp/", 0o1777, ""),
            ("usr/", 0o755, ""),
            ("usr/bin/", 0o755, ""),
            ("usr/bin/program", 0o755, "text"),
            ("var/", 0o755, ""),
            ("var/run", 0o777, "../run"),
        ];
        assert_eq!(seen, expected.map(|(path, mode, content)| (path.to_owned(), mode, content.to_owned())));
    }

    #[test]
    fn the_order_of_insertion_does_not_count() {
        let mut other = Tree::default();
        other.directory("tmp", 0o755).unwrap();
        other.directory("usr/bin", 0o755).unwrap();
        other.file("usr/bin/program", 0o755, "text").unwrap();
        other.link("var/run", "../run").unwrap();
        assert_ne!(other.pack(1).unwrap(), tree().pack(1).unwrap(), "another mode");
        other.directory("tmp", 0o1777).unwrap();
        assert_eq!(other.pack(1).unwrap(), tree().pack(1).unwrap());
        assert_ne!(other.pack(2).unwrap(), tree().pack(1).unwrap(), "another time");
        assert_eq!(other.size(), 4);
        assert!(other.has_directory("/usr/bin") && !other.has_directory("/usr/bin/program"));
        assert_eq!(other.content("/usr/bin/program"), Some(&b"text"[..]));
    }

    #[test]
    fn what_no_image_can_have_is_refused() {
        let mut tree = tree();
        for path in ["", "/etc/passwd", "etc/", "a/../../b", "./a", "a//b"] {
            assert!(matches!(tree.file(path, 0o644, ""), Err(TreeError::Path { .. })), "{path}");
        }
        for path in ["usr/bin", "usr/bin/program", "usr/bin/program/x", "var/run/x"] {
            assert!(matches!(tree.file(path, 0o644, ""), Err(TreeError::Taken { .. })), "{path}");
        }
        tree.file(&"long".repeat(100), 0o644, "").unwrap();
        assert!(matches!(tree.pack(1), Err(TreeError::Header { .. })));
    }
}
