//! The list of tests, with what is expected of each.

use crate::error::{Context, Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The list of this repository, where it was when this program was compiled.
const OURS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/sig-network.txt");

/// What every name in the list begins with.
pub(crate) const GROUP: &str = "[sig-network] ";

/// The label of tests that every cluster must pass.
const CONFORMANCE: &str = "[Conformance]";

/// Labels of tests that need not be in the list: they want what clusters need not have, or disturb others.
const OPTIONAL: [&str; 6] = ["[Feature:", "[FeatureGate:", "[Disruptive]", "[Serial]", "[Slow]", "[Deprecated]"];

/// What is expected of a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    /// It passes.
    Passes,
    /// It was run and fails, for this reason.
    Fails(String),
    /// It was not run, for this reason.
    NotRun(String),
}

impl Expected {
    /// From a heading: `passes`, `fails: WHY` or `not run: WHY`.
    fn parse(heading: &str) -> Option<Self> {
        let (result, why) = heading.split_once(": ").map_or((heading, ""), |(result, why)| (result, why.trim()));
        match (result.trim(), why) {
            ("passes", "") => Some(Self::Passes),
            ("fails", why) if !why.is_empty() => Some(Self::Fails(why.to_owned())),
            ("not run", why) if !why.is_empty() => Some(Self::NotRun(why.to_owned())),
            _ => None,
        }
    }

    /// The result in a word, and why it is no better.
    #[must_use]
    pub fn told(&self) -> (&str, &str) {
        match self {
            Self::Passes => ("passes", ""),
            Self::Fails(why) => ("fails", why),
            Self::NotRun(why) => ("not run", why),
        }
    }
}

/// A test, and what is expected of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its whole name, as the suite has it.
    pub name: String,
    /// What is expected.
    pub expected: Expected,
}

/// All tests of the list, in its order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct List {
    entries: Vec<Entry>,
}

impl List {
    /// The list of this repository.
    ///
    /// # Errors
    /// [`Error::List`], and when it cannot be read.
    pub fn ours() -> Result<Self> {
        let path = Path::new(OURS);
        Self::parse(&std::fs::read_to_string(path).on("reading", path)?)
    }

    /// From lines: `= HEADING`, and below it names of tests without the words that all begin with; `#` begins a comment.
    ///
    /// # Errors
    /// [`Error::List`] for a line that is none of these, and a name that was there before.
    pub fn parse(text: &str) -> Result<Self> {
        let (mut entries, mut expected, mut seen) = (Vec::new(), None, BTreeSet::new());
        for (number, line) in text.lines().map(str::trim).enumerate() {
            let wrong = || Error::List { line: number + 1, text: line.to_owned() };
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(heading) = line.strip_prefix("= ") {
                expected = Some(Expected::parse(heading).ok_or_else(wrong)?);
                continue;
            }
            let expected = expected.clone().ok_or_else(wrong)?;
            if !seen.insert(line) {
                return Err(wrong());
            }
            entries.push(Entry { name: format!("{GROUP}{line}"), expected });
        }
        Ok(Self { entries })
    }

    /// All of them.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// How many are expected to pass, to fail, and were not run.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for entry in &self.entries {
            *counts.entry(entry.expected.told().0).or_default() += 1;
        }
        counts
    }

    /// In what the list and the suite's tests differ, a line each: names that the suite has not, and tests that should
    /// be in the list, which are those for every cluster and all others that want nothing special.
    #[must_use]
    pub fn complaints(&self, suite: &BTreeSet<String>) -> Vec<String> {
        let listed: BTreeSet<&str> = self.entries.iter().map(|entry| entry.name.as_str()).collect();
        let unknown = listed.iter().filter(|name| !suite.contains(**name));
        let unknown = unknown.map(|name| format!("in the list, and no test: {name}"));
        let absent = suite.iter().filter(|name| belongs(name) && !listed.contains(name.as_str()));
        unknown.chain(absent.map(|name| format!("not in the list: {name}"))).collect()
    }
}

/// Whether a test must be in the list.
fn belongs(name: &str) -> bool {
    let optional = || OPTIONAL.iter().any(|label| name.contains(label));
    name.starts_with(GROUP) && (name.contains(CONFORMANCE) || !optional())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# A comment\n= passes\nPods one [Conformance]\n\n= fails: needs Services\nServices two\n";

    fn suite(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| format!("{GROUP}{name}")).collect()
    }

    #[test]
    fn names_stand_below_what_is_expected_of_them() {
        let list = List::parse(TEXT).unwrap();
        let expected = [
            ("[sig-network] Pods one [Conformance]", ("passes", "")),
            ("[sig-network] Services two", ("fails", "needs Services")),
        ];
        let seen: Vec<_> = list.entries().iter().map(|entry| (entry.name.as_str(), entry.expected.told())).collect();
        assert_eq!(seen, expected);
        assert_eq!(list.counts(), BTreeMap::from([("passes", 1), ("fails", 1)]));
    }

    #[test]
    fn a_line_that_says_nothing_is_named() {
        for (text, line) in [
            ("Pods one\n", 1),
            ("= passes\na\n= fails\nb\n", 3),
            ("= perhaps: x\n", 1),
            ("= passes: but\n", 1),
            ("= passes\na\n= not run: x\na\n", 4),
        ] {
            assert!(matches!(List::parse(text), Err(Error::List { line: at, .. }) if at == line), "{text}");
        }
    }

    #[test]
    fn list_and_suite_must_agree() {
        let list = List::parse(TEXT).unwrap();
        assert!(list.complaints(&suite(&["Pods one [Conformance]", "Services two"])).is_empty());
        let complaints = list.complaints(&suite(&[
            "Pods one [Conformance]",
            "Pods three",
            "Pods four [Feature:SCTP]",
            "Pods five [Slow] [Conformance]",
        ]));
        assert_eq!(
            complaints,
            [
                "in the list, and no test: [sig-network] Services two",
                "not in the list: [sig-network] Pods five [Slow] [Conformance]",
                "not in the list: [sig-network] Pods three",
            ]
        );
    }

    #[test]
    fn our_list_can_be_read() {
        assert!(!List::ours().unwrap().entries().is_empty());
    }
}
