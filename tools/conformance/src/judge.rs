//! What came out of a run, held to the list.

use crate::list::{Entry, Expected};
use crate::report::{Ended, Outcome};

/// The verdict on a run.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Tests that passed.
    pub passed: usize,
    /// Tests that failed, whatever was expected.
    pub failed: usize,
    /// Tests of the list that did not run, or said that they do not apply.
    pub skipped: usize,
    /// What is worth saying, a line each.
    pub lines: Vec<String>,
    /// Whether everything that should pass did.
    pub good: bool,
}

impl Verdict {
    /// The closing line.
    #[must_use]
    pub fn summary(&self) -> String {
        format!("conformance: {} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// Holds an outcome to what is expected. Of `entries`, those that `chosen` says were to run.
#[must_use]
pub fn judge(entries: &[Entry], chosen: impl Fn(&Entry) -> bool, outcome: &Outcome) -> Verdict {
    let mut verdict = Verdict { good: true, ..Verdict::default() };
    for around in &outcome.around {
        verdict.good = false;
        verdict.lines.push(format!("FAILED around the tests: {around}"));
    }
    for entry in entries {
        let must = entry.expected == Expected::Passes && chosen(entry);
        let name = &entry.name;
        let bad = match outcome.tests.get(name) {
            Some(Ended::Passed(_)) => {
                verdict.passed += 1;
                if entry.expected != Expected::Passes {
                    verdict.lines.push(format!("passes, and the list expects less of it: {name}"));
                }
                None
            }
            Some(Ended::Failed(why)) => {
                verdict.failed += 1;
                Some(format!("FAILED {name}\n       {why}"))
            }
            Some(Ended::Skipped(why)) => {
                verdict.skipped += 1;
                Some(format!("SKIPPED ITSELF {name}\n       {why}"))
            }
            None => {
                verdict.skipped += 1;
                Some(format!("DID NOT RUN {name}"))
            }
        };
        if let Some(line) = bad.filter(|_| must) {
            verdict.good = false;
            verdict.lines.push(line);
        }
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list::List;
    use std::time::Duration;

    const TEXT: &str = "= passes\na\nb\n= fails: needs Services\nc\n= not run: takes an hour\nd\n";

    fn outcome(tests: &[(&str, Ended)]) -> Outcome {
        let tests = tests.iter().map(|(name, ended)| (format!("[sig-network] {name}"), ended.clone())).collect();
        Outcome { tests, around: Vec::new() }
    }

    fn passed() -> Ended {
        Ended::Passed(Duration::from_secs(1))
    }

    fn failed() -> Ended {
        Ended::Failed("failed: no answer".to_owned())
    }

    #[test]
    fn what_was_expected_is_good() {
        let list = List::parse(TEXT).unwrap();
        let verdict = judge(list.entries(), |_| true, &outcome(&[("a", passed()), ("b", passed()), ("c", failed())]));
        assert!(verdict.good && verdict.lines.is_empty(), "{verdict:?}");
        assert_eq!(verdict.summary(), "conformance: 2 passed, 1 failed, 1 skipped");
    }

    #[test]
    fn what_should_pass_and_did_not_is_bad() {
        let list = List::parse(TEXT).unwrap();
        let skipped = Ended::Skipped("one node".to_owned());
        for (b, told) in [(Some(failed()), "FAILED"), (Some(skipped), "SKIPPED ITSELF"), (None, "DID NOT RUN")] {
            let mut tests = vec![("a", passed())];
            tests.extend(b.map(|ended| ("b", ended)));
            let verdict = judge(list.entries(), |_| true, &outcome(&tests));
            assert!(!verdict.good && verdict.lines[0].starts_with(&format!("{told} [sig-network] b")), "{verdict:?}");
            // Of what was not chosen nothing is expected.
            assert!(judge(list.entries(), |entry| entry.name.ends_with('a'), &outcome(&tests)).good);
        }
        let around = Outcome { around: vec!["BeforeSuite failed".to_owned()], ..outcome(&[]) };
        assert!(!judge(&[], |_| true, &around).good);
    }

    #[test]
    fn what_is_better_than_expected_is_told() {
        let list = List::parse(TEXT).unwrap();
        let tests = [("a", passed()), ("b", passed()), ("c", passed()), ("d", passed())];
        let verdict = judge(list.entries(), |_| true, &outcome(&tests));
        assert!(verdict.good);
        assert_eq!(verdict.lines.len(), 2);
        assert!(verdict.lines[0].contains("expects less of it: [sig-network] c"), "{verdict:?}");
    }
}
