//! What a test binary's output and exit code amount to.

use std::ops::AddAssign;

/// What a test prints, with a reason, when it cannot run here. It may follow the harness's words on the same line.
const SKIPPED: &str = "SKIPPED ";

/// Counts of tests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Tests that passed.
    pub(crate) passed: u32,
    /// Tests that failed. A binary that ends badly or never counts as one at least.
    pub(crate) failed: u32,
    /// Tests that were not run.
    pub(crate) skipped: u32,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// The size of a program as the verifier saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verified {
    /// The program's name.
    pub(crate) program: String,
    /// Instructions verified, over all paths (`verified_insns` of `struct bpf_prog_info`).
    pub(crate) instructions: u32,
}

/// One test binary's run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// The test's name.
    pub(crate) name: String,
    /// Its exit code; 124 when it reached its time limit, none when none came back.
    pub(crate) code: Option<i32>,
    /// What it wrote.
    pub(crate) output: String,
}

impl Outcome {
    /// The tests in it, by the summaries of the test harness, and by the exit code where these fall short of it.
    pub(crate) fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        let mut announced = 0;
        for line in self.output.lines() {
            if let Some(summary) = line.trim_start().strip_prefix("test result: ") {
                counts += summary_counts(summary);
            } else if line.contains(SKIPPED) {
                announced += 1;
            }
        }
        // The harness takes a test that returns early for one that passed.
        counts.passed = counts.passed.saturating_sub(announced);
        counts.skipped += announced;
        let ran = counts != Counts::default();
        match self.code {
            Some(0) if ran => {}
            // A harness that ran nothing has checked nothing; a program without a harness is one check.
            Some(0) if self.output.contains("running 0 tests") => counts.failed = 1,
            Some(0) => counts.passed = 1,
            _ => counts.failed = counts.failed.max(1),
        }
        counts
    }

    /// The lines `verified NAME COUNT` in the output.
    pub(crate) fn verified(&self) -> Vec<Verified> {
        self.output
            .lines()
            .filter_map(|line| {
                let mut words = line.strip_prefix("verified ")?.split_whitespace();
                let verified =
                    Verified { program: words.next()?.to_owned(), instructions: words.next()?.parse().ok()? };
                words.next().is_none().then_some(verified)
            })
            .collect()
    }
}

/// Reads `ok. 3 passed; 0 failed; 1 ignored; 0 measured; ...`.
fn summary_counts(summary: &str) -> Counts {
    let number = |what: &str| {
        summary.split([';', '.']).find_map(|part| part.trim().strip_suffix(what)?.trim().parse().ok()).unwrap_or(0)
    };
    Counts { passed: number(" passed"), failed: number(" failed"), skipped: number(" ignored") }
}

/// Lines on a guest's console that tell of a fault in the kernel itself.
pub(crate) fn faults(console: &str) -> Vec<String> {
    const SIGNS: &[&str] = &[
        "BUG: ",
        "Oops: ",
        "WARNING: CPU",
        "WARNING: possible",
        "Kernel panic",
        "general protection fault",
        "rcu: INFO",
    ];
    console
        .lines()
        .filter(|line| SIGNS.iter().any(|sign| line.contains(sign)))
        .map(|line| line.trim().to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(code: Option<i32>, output: &str) -> Outcome {
        Outcome { name: "t".to_owned(), code, output: output.to_owned() }
    }

    fn counts(passed: u32, failed: u32, skipped: u32) -> Counts {
        Counts { passed, failed, skipped }
    }

    #[test]
    fn summaries_are_summed() {
        let text = "running 4 tests\ntest result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n\
                    test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out\n";
        assert_eq!(outcome(Some(101), text).counts(), counts(13, 2, 1));
    }

    #[test]
    fn an_exit_code_outweighs_a_good_summary() {
        let text = "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured\n";
        assert_eq!(outcome(Some(139), text).counts(), counts(3, 1, 0));
        assert_eq!(outcome(None, "").counts(), counts(0, 1, 0));
        assert_eq!(outcome(Some(124), "test a ... ").counts(), counts(0, 1, 0));
    }

    #[test]
    fn a_program_without_a_harness_is_one_check() {
        assert_eq!(outcome(Some(0), "fine\n").counts(), counts(1, 0, 0));
    }

    #[test]
    fn a_harness_that_ran_nothing_failed() {
        let text = "running 0 tests\n\ntest result: ok. 0 passed; 0 failed; 0 ignored; 0 measured\n";
        assert_eq!(outcome(Some(0), text).counts(), counts(0, 1, 0));
    }

    #[test]
    fn announced_skips_are_counted() {
        let text = "test a ... SKIPPED 1: no second CPU\ntest result: ok. 2 passed; 0 failed; 0 ignored; 0 measured\n";
        assert_eq!(outcome(Some(0), text).counts(), counts(1, 0, 1));
    }

    #[test]
    fn verified_lines_are_read_and_others_passed_over() {
        let text = "verified from_pod 1234\nverified by hand 3\n verified x 1\nverified y z\n";
        assert_eq!(
            outcome(Some(0), text).verified(),
            [Verified { program: "from_pod".to_owned(), instructions: 1234 }]
        );
    }

    #[test]
    fn faults_are_seen_on_a_console() {
        let console = "[    1.0] clocksource: fine\n[    2.0] BUG: kernel NULL pointer dereference\r\n";
        assert_eq!(faults(console), ["[    2.0] BUG: kernel NULL pointer dereference"]);
    }
}
