//! What became of everything that is ours.

use serde::Serialize;
use std::fmt;

/// What happened to one thing, or would happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It is gone; in a dry run, it would be.
    Removed,
    /// It stays, since it is not ours alone or is in use.
    Left,
    /// It is ours, and could not be removed.
    Failed,
}

/// One thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Item {
    /// What happened.
    pub outcome: Outcome,
    /// Its kind, for people: `program`, `device`, `file`, …
    pub kind: &'static str,
    /// Which one.
    pub name: String,
    /// Why it stays, or what failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// What became of everything, in the order in which it was done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Nothing was done.
    pub dry_run: bool,
    /// Everything that was found.
    pub items: Vec<Item>,
}

impl Report {
    pub(super) fn new(dry_run: bool) -> Self {
        Self { dry_run, items: Vec::new() }
    }

    fn add(&mut self, outcome: Outcome, kind: &'static str, name: String, why: Option<String>, remedy: Option<&str>) {
        self.items.push(Item { outcome, kind, name, why, remedy: remedy.map(str::to_owned) });
    }

    pub(super) fn left(&mut self, kind: &'static str, name: impl Into<String>, why: impl Into<String>, remedy: &str) {
        self.add(Outcome::Left, kind, name.into(), Some(why.into()), Some(remedy));
    }

    pub(super) fn failed(&mut self, kind: &'static str, name: impl Into<String>, why: impl ToString, remedy: &str) {
        self.add(Outcome::Failed, kind, name.into(), Some(why.to_string()), Some(remedy));
    }

    /// Does what removes a thing, unless nothing is to be done, and notes what came of it.
    pub(super) fn remove<E: fmt::Display>(
        &mut self,
        kind: &'static str,
        name: impl Into<String>,
        remedy: &str,
        act: impl FnOnce() -> Result<(), E>,
    ) {
        let outcome = if self.dry_run { Ok(()) } else { act() };
        self.done(kind, name, remedy, outcome);
    }

    /// Notes what came of removing a thing.
    pub(super) fn done<E: fmt::Display>(
        &mut self,
        kind: &'static str,
        name: impl Into<String>,
        remedy: &str,
        outcome: Result<(), E>,
    ) {
        match outcome {
            Ok(()) => self.add(Outcome::Removed, kind, name.into(), None, None),
            Err(error) => self.failed(kind, name, error, remedy),
        }
    }

    /// Whether something of ours is still there though it should not be.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.items.iter().any(|item| item.outcome == Outcome::Failed)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for item in &self.items {
            let outcome = match item.outcome {
                Outcome::Removed if self.dry_run => "would remove",
                Outcome::Removed => "removed",
                Outcome::Left if self.dry_run => "would leave",
                Outcome::Left => "left",
                Outcome::Failed => "FAILED",
            };
            write!(f, "{outcome:<12}  {:<13}  {}", item.kind, item.name)?;
            if let Some(why) = &item.why {
                write!(f, ": {why}")?;
            }
            writeln!(f)?;
            if let Some(remedy) = &item.remedy {
                writeln!(f, "{:<29}→ {remedy}", "")?;
            }
        }
        if self.items.is_empty() {
            writeln!(f, "nothing of Juneau's is on this node")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_counts_and_what_is_left_does_not() {
        let mut report = Report::new(false);
        report.remove("device", "juneau.vxlan", "", || Ok::<(), String>(()));
        report.left("Pod interface", "eth0c1", "in use", "delete the Pod");
        assert!(!report.has_failed());
        report.remove("file", "/x", "mount it writable", || Err("read-only"));
        assert!(report.has_failed());
        assert_eq!(
            report.to_string(),
            concat!(
                "removed       device         juneau.vxlan\n",
                "left          Pod interface  eth0c1: in use\n",
                "                             → delete the Pod\n",
                "FAILED        file           /x: read-only\n",
                "                             → mount it writable\n",
            )
        );
        assert!(Report::new(true).to_string().starts_with("nothing"));
    }

    #[test]
    fn a_dry_run_does_nothing() {
        let mut report = Report::new(true);
        report.remove("file", "/x", "", || -> Result<(), String> { panic!("it was done") });
        assert_eq!(report.to_string(), "would remove  file           /x\n");
    }
}
