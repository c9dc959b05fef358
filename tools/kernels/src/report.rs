//! The tables at the end of a run.

use std::{fmt::Write as _, time::Duration};

use crate::outcome::{Counts, Verified};

/// How one kernel fared.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    /// The kernel line, or `native`.
    pub(crate) kernel: String,
    /// The version of its package, or the release of the running one.
    pub(crate) version: String,
    /// Its tests.
    pub(crate) counts: Counts,
    /// From the start of the boot to the end of the report.
    pub(crate) took: Duration,
    /// What else there is to say, in a few words.
    pub(crate) note: String,
    /// The sizes of the programs on this kernel.
    pub(crate) verified: Vec<Verified>,
}

impl Row {
    /// Takes up what another guest of the same kernel did at the same time.
    pub(crate) fn add(&mut self, part: Self) {
        self.counts += part.counts;
        self.took = self.took.max(part.took);
        if self.note.is_empty() {
            self.note = part.note;
        }
        self.verified.extend(part.verified);
    }
}

/// Lays out rows of cells in columns: the first `left` ones flush left, the others flush right.
pub(crate) fn columns(rows: &[Vec<String>], left: usize) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count)
        .map(|column| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            // Writing to a String cannot fail.
            let _ = if column < left { write!(line, "{cell:<width$}  ") } else { write!(line, "{cell:>width$}  ") };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// The table of kernels.
pub(crate) fn kernels(rows: &[Row]) -> String {
    let heading = ["kernel", "version", "passed", "failed", "skipped", "seconds"];
    let mut cells = vec![heading.map(str::to_owned).to_vec()];
    cells.extend(rows.iter().map(|row| {
        vec![
            row.kernel.clone(),
            row.version.clone(),
            row.counts.passed.to_string(),
            row.counts.failed.to_string(),
            row.counts.skipped.to_string(),
            format!("{:.1}", row.took.as_secs_f64()),
        ]
    }));
    let notes = std::iter::once("").chain(rows.iter().map(|row| row.note.as_str()));
    columns(&cells, 2)
        .lines()
        .zip(notes)
        .map(|(line, note)| format!("{}\n", format!("{line}  {note}").trim_end()))
        .collect()
}

/// The last line of a run.
pub(crate) fn total(counts: Counts) -> String {
    format!("{} passed, {} failed, {} skipped", counts.passed, counts.failed, counts.skipped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_laid_out_in_columns() {
        let row = |kernel: &str, version: &str, passed, note: &str| Row {
            kernel: kernel.to_owned(),
            version: version.to_owned(),
            counts: Counts { passed, failed: 0, skipped: 1 },
            took: Duration::from_millis(1250),
            note: note.to_owned(),
            verified: Vec::new(),
        };
        let rows = [row("native", "6.18.1", 7, ""), row("6.1", "6.1.192-3", 1234, "second boot")];
        assert_eq!(
            kernels(&rows),
            "kernel  version    passed  failed  skipped  seconds\n\
             native  6.18.1          7       0        1      1.2\n\
             6.1     6.1.192-3    1234       0        1      1.2  second boot\n"
        );
    }

    #[test]
    fn the_total_is_one_plain_line() {
        let counts = Counts { passed: 93, failed: 1, skipped: 2 };
        assert_eq!(total(counts), "93 passed, 1 failed, 2 skipped");
    }
}
