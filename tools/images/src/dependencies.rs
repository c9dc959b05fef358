//! What a program is made of: the packages that cargo links into it, and which asks for which.
//!
//! `cargo tree` says which packages, with the features and for the target that the program is built with; tests,
//! build scripts and macros are not in it. `cargo metadata` says what each package is.

use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Output of cargo that is not as expected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// A line of `cargo tree`.
    #[error("cargo tree said {line:?}")]
    Line {
        /// The line.
        line: String,
    },
    /// The document of `cargo metadata`.
    #[error("cargo metadata: {0}")]
    Metadata(#[from] serde_json::Error),
    /// A package that only one of the two knows.
    #[error("cargo metadata does not know {package}")]
    Unknown {
        /// Name and version.
        package: String,
    },
}

/// Name and version.
pub type Id = (String, String);

/// A package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    /// SPDX expression, if it names one.
    pub licence: Option<String>,
    /// Where its sources are kept.
    pub repository: Option<String>,
    /// Where its sources lie here.
    pub directory: PathBuf,
}

/// Packages, and which asks for which.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Graph {
    /// The packages.
    pub packages: BTreeMap<Id, Package>,
    /// Of each package those that it asks for.
    pub edges: BTreeMap<Id, BTreeSet<Id>>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Described>,
}

#[derive(Deserialize)]
struct Described {
    name: String,
    version: String,
    license: Option<String>,
    repository: Option<String>,
    manifest_path: PathBuf,
}

impl Graph {
    /// Reads what `cargo tree --prefix depth --format '|{p}'` and `cargo metadata` say.
    ///
    /// # Errors
    /// [`GraphError`].
    pub fn parse(tree: &str, metadata: &str) -> Result<Self, GraphError> {
        let metadata: Metadata = serde_json::from_str(metadata)?;
        let known: BTreeMap<Id, Described> =
            metadata.packages.into_iter().map(|one| ((one.name.clone(), one.version.clone()), one)).collect();
        let mut graph = Self::default();
        let mut above: Vec<Id> = Vec::new();
        for line in tree.lines().filter(|line| !line.is_empty()) {
            let (depth, id) = parse_line(line).ok_or_else(|| GraphError::Line { line: line.to_owned() })?;
            if depth > above.len() {
                return Err(GraphError::Line { line: line.to_owned() });
            }
            above.truncate(depth);
            if let Some(parent) = above.last() {
                graph.edges.entry(parent.clone()).or_default().insert(id.clone());
            }
            let described =
                known.get(&id).ok_or_else(|| GraphError::Unknown { package: format!("{} {}", id.0, id.1) })?;
            let package = Package {
                licence: described.license.as_deref().map(|licence| licence.replace('/', " OR ")),
                repository: described.repository.clone(),
                directory: described.manifest_path.parent().map(Into::into).unwrap_or_default(),
            };
            graph.packages.insert(id.clone(), package);
            graph.edges.entry(id.clone()).or_default();
            above.push(id);
        }
        Ok(graph)
    }

    /// The only version of a package of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<Id> {
        let mut found = self.packages.keys().filter(|id| id.0 == name);
        found.next().filter(|_| found.next().is_none()).cloned()
    }

    /// The part that a package is made of, itself included.
    #[must_use]
    pub fn below(&self, root: &Id) -> Self {
        let mut part = Self::default();
        let mut left = vec![root];
        while let Some(id) = left.pop() {
            let (Some(package), Some(edges)) = (self.packages.get(id), self.edges.get(id)) else { continue };
            if part.packages.insert(id.clone(), package.clone()).is_none() {
                part.edges.insert(id.clone(), edges.clone());
                left.extend(edges);
            }
        }
        part
    }

    /// Both.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.packages.extend(other.packages);
        for (id, edges) in other.edges {
            self.edges.entry(id).or_default().extend(edges);
        }
        self
    }
}

/// `4|anstyle v1.0.14 (*)`: how deep, and which package. What is in brackets is a path, or "seen already".
fn parse_line(line: &str) -> Option<(usize, Id)> {
    let (depth, package) = line.split_once('|')?;
    let mut words = package.split(' ');
    let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
    Some((depth.parse().ok()?, (name.to_owned(), version.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = "0|program v0.1.0 (/somewhere/program)\n1|left v1.0.0\n2|shared v2.0.0+3\n1|right v1.0.0\n\
                        2|shared v2.0.0+3 (*)\n\n0|other v0.1.0 (/somewhere/other)\n1|right v1.0.0 (*)\n";

    fn metadata() -> String {
        let package = |name: &str, version: &str, licence: &str| {
            serde_json::json!({"name": name, "version": version, "license": licence, "repository": null,
                "manifest_path": format!("/sources/{name}/Cargo.toml"), "targets": []})
        };
        let packages = [
            package("program", "0.1.0", "MIT"),
            package("other", "0.1.0", "MIT"),
            package("left", "1.0.0", "MIT/Apache-2.0"),
            package("right", "1.0.0", "MIT"),
            package("shared", "2.0.0+3", "MIT"),
            package("shared", "1.0.0", "only for tests"),
        ];
        serde_json::json!({"packages": packages}).to_string()
    }

    fn id(name: &str, version: &str) -> Id {
        (name.to_owned(), version.to_owned())
    }

    #[test]
    fn who_asks_for_whom() {
        let graph = Graph::parse(TREE, &metadata()).unwrap();
        assert_eq!(graph.packages.len(), 5);
        assert_eq!(graph.edges[&id("program", "0.1.0")], [id("left", "1.0.0"), id("right", "1.0.0")].into());
        assert_eq!(graph.edges[&id("right", "1.0.0")], [id("shared", "2.0.0+3")].into());
        assert_eq!(graph.packages[&id("left", "1.0.0")].licence.as_deref(), Some("MIT OR Apache-2.0"));
        assert_eq!(graph.packages[&id("left", "1.0.0")].directory, std::path::Path::new("/sources/left"));

        // What was cut short at its second mention is whole.
        let other = graph.below(&graph.find("other").unwrap());
        let names: Vec<_> = other.packages.keys().map(|id| id.0.as_str()).collect();
        assert_eq!(names, ["other", "right", "shared"]);
        let program = graph.below(&graph.find("program").unwrap());
        assert_eq!(program.packages.len(), 4);
        assert_eq!(program.and(other), graph);
    }

    #[test]
    fn what_cargo_never_says_is_an_error() {
        for line in ["program v0.1.0", "x|program v0.1.0", "0|program", "0|program 0.1.0", "1|program v0.1.0"] {
            assert!(matches!(Graph::parse(line, &metadata()), Err(GraphError::Line { .. })), "{line}");
        }
        assert!(matches!(Graph::parse("0|absent v1.0.0", &metadata()), Err(GraphError::Unknown { .. })));
        assert!(matches!(Graph::parse("", "{}"), Err(GraphError::Metadata(_))));
    }
}
