//! A whole run: every kernel, every test, the tables.

use std::{
    collections::VecDeque,
    fs,
    path::{Path, PathBuf},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use crate::{
    debian,
    error::Error,
    guest,
    kernel::{self, Cache, Line},
    native,
    outcome::{Counts, Outcome},
    report::{self, Row},
    suite::{self, Shares, Test},
    verified,
};

/// Guests that run at the same time. Each has one CPU.
const LANES: usize = 2;

/// How much of a failed test's output is shown; the log has all of it.
const SHOWN_LINES: usize = 100;

/// Where a run takes place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// The kernel of this machine.
    Native,
    /// A kernel in a virtual machine.
    Guest(Line),
}

impl Target {
    /// All targets: this machine's kernel first.
    pub(crate) fn all() -> Vec<Self> {
        std::iter::once(Self::Native).chain(kernel::LINES.iter().copied().map(Self::Guest)).collect()
    }

    /// The name as given to `--kernel`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Guest(line) => line.name,
        }
    }
}

/// What to run, and how strictly.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The kernels.
    pub(crate) targets: Vec<Target>,
    /// The tests.
    pub(crate) tests: Vec<Test>,
    /// Whether the tests have Rust's harness, so that those of one binary can be dealt out to several guests.
    pub(crate) split: bool,
    /// The longest that one test binary may take.
    pub(crate) limit: Duration,
    /// Whether a kernel that cannot be had is a skip and not a failure.
    pub(crate) allow_missing: bool,
    /// The table of program sizes, when the tests report them.
    pub(crate) table: Option<PathBuf>,
    /// Whether to write the sizes of this run into the table.
    pub(crate) record: bool,
    /// The folder for the full output of each kernel.
    pub(crate) logs: PathBuf,
}

/// Runs everything and prints the tables.
///
/// # Errors
/// [`Error::Failed`] when a check failed, and what kept the run from taking place.
pub(crate) fn run(plan: &Plan) -> Result<(), Error> {
    kernel::make_folder(&plan.logs)?;
    let mut rows = Vec::new();
    if plan.targets.contains(&Target::Native) {
        rows.push(native_row(plan)?);
    }
    rows.extend(guest_rows(plan)?);

    say!();
    let sizes_fine = sizes(plan, &rows)?;
    say!("{}", report::kernels(&rows));
    let mut all = Counts::default();
    for row in &rows {
        all += row.counts;
    }
    if !sizes_fine {
        all.failed += 1;
    }
    say!("{}", report::total(all));
    if all.failed == 0 { Ok(()) } else { Err(Error::Failed) }
}

/// Prints the sizes of the programs and says whether they are as they should be.
fn sizes(plan: &Plan, rows: &[Row]) -> Result<bool, Error> {
    let Some(path) = &plan.table else {
        return Ok(true);
    };
    let seen = verified::maxima(rows);
    if plan.record {
        verified::write(path, &seen)?;
        say!("recorded {} programs in {}", seen.len(), path.display());
    }
    // When no kernel ran at all, nothing could be reported.
    if seen.is_empty() && rows.iter().all(|row| row.counts.passed == 0) {
        return Ok(true);
    }
    let recorded = verified::read(path)?;
    if seen.is_empty() && recorded.is_empty() {
        return Ok(true);
    }
    say!("{}", verified::table(rows, &recorded));
    let complaints = verified::complaints(&seen, &recorded);
    for complaint in &complaints {
        say!("verified instructions: {complaint}");
    }
    Ok(complaints.is_empty())
}

fn native_row(plan: &Plan) -> Result<Row, Error> {
    let release = native::release()?;
    say!("native: {release}");
    let begin = Instant::now();
    let outcomes = native::run(&plan.tests, plan.limit)?;
    let row = Row {
        kernel: "native".to_owned(),
        version: release,
        counts: sum(&outcomes),
        took: begin.elapsed(),
        note: String::new(),
        verified: outcomes.iter().flat_map(Outcome::verified).collect(),
    };
    finish(plan, &row.kernel, &outcomes, "");
    Ok(row)
}

fn guest_rows(plan: &Plan) -> Result<Vec<Row>, Error> {
    let lines: Vec<Line> = plan
        .targets
        .iter()
        .filter_map(|target| match target {
            Target::Native => None,
            Target::Guest(line) => Some(*line),
        })
        .collect();
    if lines.is_empty() {
        return Ok(Vec::new());
    }
    let cache = Cache::of_user()?;
    let tools = debian::ensure_tools();
    // Before any guest, and one after the other, so that apt's progress stays readable.
    let mut kernels = Vec::new();
    for line in &lines {
        kernels.push(match &tools {
            Ok(()) => cache.fetch(*line, false).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        });
    }
    // A single kernel has all lanes.
    let count = if plan.split { LANES.div_ceil(lines.len()) } else { 1 };
    let shares = if plan.split {
        suite::share(&plan.tests, count)?
    } else {
        Shares { shares: vec![plan.tests.clone()], native_only: Vec::new() }
    };
    if !shares.native_only.is_empty() {
        say!("natively only, as they measure: {}", shares.native_only.join(" "));
    }

    let mut queue = VecDeque::new();
    let mut rows: Vec<Row> = Vec::new();
    for (index, (line, kernel)) in lines.iter().zip(&kernels).enumerate() {
        rows.push(match kernel {
            Ok(kernel) => Row {
                kernel: line.name.to_owned(),
                version: kernel.version().to_owned(),
                counts: Counts { skipped: shares.native_only.len() as u32, ..Counts::default() },
                took: Duration::ZERO,
                note: String::new(),
                verified: Vec::new(),
            },
            Err(reason) => missing_row(plan, *line, reason),
        });
        if let Ok(kernel) = kernel {
            for (number, tests) in shares.shares.iter().enumerate().filter(|(_, tests)| !tests.is_empty()) {
                let name = if count == 1 { line.name.to_owned() } else { format!("{}-{}", line.name, number + 1) };
                queue.push_back((index, Guest { line: *line, kernel, name, tests }));
            }
        }
    }
    let lanes = LANES.min(queue.len());
    let queue = Mutex::new(queue);
    let done = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..lanes {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().ok().and_then(|mut queue| queue.pop_front());
                    let Some((index, guest)) = next else { break };
                    let row = guest_row(plan, &guest);
                    if let Ok(mut done) = done.lock() {
                        done.push((index, row));
                    }
                }
            });
        }
    });
    for (index, part) in done.into_inner().unwrap_or_default() {
        rows[index].add(part?);
    }
    Ok(rows)
}

/// One guest's work.
struct Guest<'a> {
    line: Line,
    kernel: &'a kernel::Kernel,
    name: String,
    tests: &'a [Test],
}

fn guest_row(plan: &Plan, guest: &Guest<'_>) -> Result<Row, Error> {
    let Guest { line, kernel, name, tests } = guest;
    say!("{name}: booting {}", kernel.version());
    let begin = Instant::now();
    let mut report = guest::run(kernel, tests, plan.limit, name)?;
    let mut note = String::new();
    if !report.complete {
        say!("{name}: no exit code came back; booting once more");
        write_log(&plan.logs.join(format!("{name}.first")), &report.outcomes, &report.console);
        report = guest::run(kernel, tests, plan.limit, name)?;
        note.push_str("second boot");
    }
    // A test that was never begun has no outcome yet: it failed.
    for test in tests.iter().skip(report.outcomes.len()) {
        report.outcomes.push(Outcome { name: test.name.clone(), code: None, output: String::new() });
    }
    let mut counts = sum(&report.outcomes);
    // A guest that ran another kernel than its row says has shown nothing about this one.
    if let Some(release) = report.release.filter(|release| !release.starts_with(&format!("{}.", line.name))) {
        report.faults.push(format!("the guest runs {release}"));
    }
    if let Some(fault) = report.faults.first() {
        counts.failed += 1;
        note = format!("fault: {fault}");
    }
    finish(plan, name, &report.outcomes, &report.console);
    Ok(Row {
        kernel: line.name.to_owned(),
        version: kernel.version().to_owned(),
        counts,
        took: begin.elapsed(),
        note,
        verified: report.outcomes.iter().flat_map(Outcome::verified).collect(),
    })
}

/// The row of a kernel that could not be had: one skip or one failure.
fn missing_row(plan: &Plan, line: Line, reason: &str) -> Row {
    let one = Counts { skipped: u32::from(plan.allow_missing), failed: u32::from(!plan.allow_missing), passed: 0 };
    Row {
        kernel: line.name.to_owned(),
        version: "-".to_owned(),
        counts: one,
        took: Duration::ZERO,
        note: format!("not run: {reason}"),
        verified: Vec::new(),
    }
}

fn sum(outcomes: &[Outcome]) -> Counts {
    let mut counts = Counts::default();
    for outcome in outcomes {
        counts += outcome.counts();
    }
    counts
}

/// Keeps the full output of a kernel, and shows that of the tests that failed.
fn finish(plan: &Plan, name: &str, outcomes: &[Outcome], console: &str) {
    let log = plan.logs.join(name);
    write_log(&log, outcomes, console);
    let mut shown = false;
    for outcome in outcomes.iter().filter(|outcome| outcome.counts().failed > 0) {
        let code = match outcome.code {
            Some(124) => "time limit".to_owned(),
            Some(code) => format!("exit code {code}"),
            None => "no exit code".to_owned(),
        };
        say!("---- {name}: {} failed ({code})\n{}", outcome.name, end_of(outcome.output.trim_end(), SHOWN_LINES));
        shown = true;
    }
    if outcomes.iter().any(|outcome| outcome.code.is_none()) {
        say!("---- {name}: end of the console\n{}", end_of(console.trim_end(), 20));
    }
    if shown {
        say!("---- {name}: all output in {}.log", log.display());
    }
}

/// The last `count` lines of a text, each up to a width that a terminal bears.
fn end_of(text: &str, count: usize) -> String {
    const WIDTH: usize = 400;
    let lines: Vec<&str> = text.lines().collect();
    let mut end = String::new();
    if lines.len() > count {
        end.push_str("[...]\n");
    }
    for line in lines.iter().skip(lines.len().saturating_sub(count)) {
        end.extend(line.chars().take(WIDTH));
        end.push('\n');
    }
    end.pop();
    end
}

fn write_log(stem: &Path, outcomes: &[Outcome], console: &str) {
    let mut text = String::new();
    for outcome in outcomes {
        text.push_str(&format!("==== {} ({:?})\n{}\n", outcome.name, outcome.code, outcome.output));
    }
    text.push_str("==== console\n");
    text.push_str(console);
    let mut path = stem.as_os_str().to_owned();
    path.push(".log");
    if let Err(error) = fs::write(&path, text) {
        say!("cannot write {}: {error}", Path::new(&path).display());
    }
}

#[cfg(test)]
mod tests {
    use super::end_of;

    #[test]
    fn the_end_of_a_text_is_shown_and_long_lines_are_cut() {
        assert_eq!(end_of("a\nb\nc", 3), "a\nb\nc");
        assert_eq!(end_of("a\nb\nc", 2), "[...]\nb\nc");
        assert_eq!(end_of(&"x".repeat(1000), 2).len(), 400);
        assert_eq!(end_of("", 2), "");
    }
}
