//! The table that is printed and the summary that is written.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

use crate::error::{Context, Error, Result};

/// What a figure must be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// Not more than this.
    AtMost(f64),
    /// Not less than this.
    AtLeast(f64),
}

impl Bound {
    /// The bound with the noise of the base added on the side that forgives.
    #[must_use]
    pub fn forgiving(self, noise: f64) -> Self {
        match self {
            Self::AtMost(goal) => Self::AtMost(goal + noise),
            Self::AtLeast(goal) => Self::AtLeast(goal - noise),
        }
    }

    /// Whether `value` is within the bound.
    #[must_use]
    pub fn holds(self, value: f64) -> bool {
        match self {
            Self::AtMost(goal) => value <= goal,
            Self::AtLeast(goal) => value >= goal,
        }
    }

    fn value(self) -> f64 {
        match self {
            Self::AtMost(goal) | Self::AtLeast(goal) => goal,
        }
    }
}

/// One line of the table.
#[derive(Debug, Clone)]
pub struct Row {
    /// What was measured.
    pub name: String,
    /// The figure: a ratio, or an amount of `unit`.
    pub value: f64,
    /// Unit of the figure; empty for a ratio.
    pub unit: &'static str,
    /// |A/A − 1| of the base, for ratios to a base that ran twice.
    pub noise: Option<f64>,
    /// The goal without the noise; `None` for a figure that only informs.
    pub goal: Option<Bound>,
    /// What the figure was made of, for the reader.
    pub detail: String,
}

impl Row {
    /// The goal with the noise of the base added.
    #[must_use]
    pub fn effective_goal(&self) -> Option<Bound> {
        Some(self.goal?.forgiving(self.noise.unwrap_or(0.0)))
    }

    /// Whether the goal is met; `None` without a goal.
    #[must_use]
    pub fn pass(&self) -> Option<bool> {
        Some(self.effective_goal()?.holds(self.value))
    }
}

/// Rows, each of which is told when it is taken: all of them take long.
#[derive(Debug, Default)]
pub struct Rows(Vec<Row>);

impl Rows {
    /// Takes a row.
    pub fn push(&mut self, row: Row) {
        progress(line(&row));
        self.0.push(row);
    }

    /// Takes several.
    pub fn extend(&mut self, rows: impl IntoIterator<Item = Row>) {
        rows.into_iter().for_each(|row| self.push(row));
    }

    /// All that were taken.
    #[must_use]
    pub fn all(&self) -> &[Row] {
        &self.0
    }
}

/// A row by itself.
fn line(row: &Row) -> String {
    let cells = cells(row);
    let words: Vec<&str> = cells.iter().skip(1).map(String::as_str).filter(|cell| !cell.is_empty()).collect();
    format!("  {}: {}", row.name, words.join("  "))
}

#[derive(Serialize)]
struct Summary<'a> {
    name: &'a str,
    ratio: f64,
    goal: f64,
    pass: bool,
}

/// The rows that have a goal, as JSON: `[{"name","ratio","goal","pass"}]`. `ratio` holds the figure in its unit where
/// it is none, and the goal has the noise added.
///
/// # Errors
/// [`Error::Io`] when a figure is not a number.
pub fn summary(rows: &[Row]) -> Result<String> {
    let list: Vec<Summary<'_>> = rows
        .iter()
        .filter_map(|row| {
            Some(Summary {
                name: &row.name,
                ratio: round(row.value),
                goal: round(row.effective_goal()?.value()),
                pass: row.pass()?,
            })
        })
        .collect();
    serde_json::to_string_pretty(&list)
        .map_err(|error| Error::Io { what: "the summary as JSON".into(), source: error.into() })
}

/// Writes the summary to `directory`/summary.json.
///
/// # Errors
/// [`Error::Io`] when the file cannot be written.
pub fn write_summary(rows: &[Row], directory: &Path) -> Result<()> {
    let path = directory.join("summary.json");
    fs::create_dir_all(directory).context(format!("creating {}", directory.display()))?;
    fs::write(&path, summary(rows)? + "\n").context(format!("writing {}", path.display()))
}

/// Prints the table.
///
/// # Errors
/// [`Error::Io`] when the output is closed.
pub fn print(rows: &[Row], mut to: impl Write) -> Result<()> {
    for line in table(rows) {
        writeln!(to, "{line}").context("printing the table")?;
    }
    Ok(())
}

fn table(rows: &[Row]) -> Vec<String> {
    let mut cells = vec![["measure", "figure", "A/A", "goal", "", ""].map(String::from)];
    cells.extend(rows.iter().map(self::cells));
    let mut widths = [0; 6];
    for line in &cells {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    cells
        .into_iter()
        .map(|line| {
            let padded: Vec<String> = line.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
            padded.join("  ").trim_end().to_owned()
        })
        .collect()
}

fn cells(row: &Row) -> [String; 6] {
    [
        row.name.clone(),
        format!("{}{}", number(row.value), unit(row.unit)),
        row.noise.map_or_else(String::new, |n| format!("±{n:.3}")),
        row.effective_goal().map_or_else(String::new, |goal| {
            let sign = if matches!(goal, Bound::AtMost(_)) { "≤" } else { "≥" };
            format!("{sign} {}{}", number(goal.value()), unit(row.unit))
        }),
        match row.pass() {
            Some(true) => "PASS".into(),
            Some(false) => "MISS".into(),
            None => String::new(),
        },
        row.detail.clone(),
    ]
}

fn unit(unit: &str) -> String {
    if unit.is_empty() { String::new() } else { format!(" {unit}") }
}

/// Three decimals for ratios and small amounts, none for large ones.
fn number(value: f64) -> String {
    if value.abs() < 10.0 {
        format!("{value:.3}")
    } else if value.abs() < 1000.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

fn round(value: f64) -> f64 {
    (value * 10_000.0).round() / 10_000.0
}

/// Writes a line for the person who waits; a closed terminal is no error.
pub fn progress(line: impl AsRef<str>) {
    let _ = writeln!(io::stderr(), "{}", line.as_ref());
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn row(value: f64, goal: Option<Bound>, noise: Option<f64>) -> Row {
        Row { name: "same node: UDP packet / direct veth".into(), value, unit: "", noise, goal, detail: String::new() }
    }

    #[test]
    fn noise_forgives_in_the_direction_of_the_goal() {
        assert_eq!(row(1.13, Some(Bound::AtMost(1.12)), Some(0.02)).pass(), Some(true));
        assert_eq!(row(1.13, Some(Bound::AtMost(1.12)), None).pass(), Some(false));
        assert_eq!(row(0.96, Some(Bound::AtLeast(0.97)), Some(0.02)).pass(), Some(true));
        assert_eq!(row(0.94, Some(Bound::AtLeast(0.97)), Some(0.02)).pass(), Some(false));
        assert_eq!(row(9.0, None, Some(0.02)).pass(), None);
    }

    #[test]
    fn the_summary_holds_rows_with_goals() {
        let rows = [row(1.123_456, Some(Bound::AtMost(1.12)), Some(0.01)), row(2.0, None, None)];
        let parsed: serde_json::Value = serde_json::from_str(&summary(&rows).unwrap()).unwrap();
        assert_eq!(
            parsed,
            serde_json::json!([{
                "name": "same node: UDP packet / direct veth",
                "ratio": 1.1235,
                "goal": 1.13,
                "pass": true,
            }])
        );
    }

    #[test]
    fn the_table_names_the_verdict() {
        let lines = table(&[row(1.2, Some(Bound::AtMost(1.12)), Some(0.004)), row(1.0, None, None)]);
        assert_eq!(lines.len(), 3);
        let words: Vec<&str> = lines[1].split_whitespace().rev().take(5).collect();
        assert_eq!(words, ["MISS", "1.124", "≤", "±0.004", "1.200"]);
        assert!(!lines[2].contains("PASS") && !lines[2].contains("MISS"));
    }

    #[test]
    fn a_row_is_told_by_itself() {
        let told = line(&Row { unit: "ms", detail: "9 Pods".into(), ..row(1.5, Some(Bound::AtMost(5.0)), None) });
        assert_eq!(told, "  same node: UDP packet / direct veth: 1.500 ms  ≤ 5.000 ms  PASS  9 Pods");
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(number(1.0449), "1.045");
        assert_eq!(number(155.04), "155.0");
        assert_eq!(number(1234.5), "1234");
    }
}
