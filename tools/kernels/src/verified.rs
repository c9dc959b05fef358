//! The sizes of the programs as the verifiers saw them, against the committed table.
//!
//! A program's cost to the verifier differs from kernel to kernel and grows by surprise; the kernel's own bound of a
//! million is far too late a warning. So the largest count over the kernels of a run is compared with the last one
//! that was accepted.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::Path,
};

use crate::{
    error::Error,
    report::{self, Row},
};

/// The largest count that any program may have.
const BOUND: u32 = 20_000;

/// A count may be above the recorded one by this many hundredths.
const GROWTH: u32 = 10;

/// Counts by program.
pub(crate) type Counts = BTreeMap<String, u32>;

/// Reads the table: lines of a name, a tab and a number; `#` begins a comment. An absent file is an empty table.
///
/// # Errors
/// [`Error::Table`] for a line that is none of these.
pub(crate) fn read(path: &Path) -> Result<Counts, Error> {
    match fs::read_to_string(path) {
        Ok(text) => parse(&text).map_err(|line| Error::Table { path: path.to_owned(), line }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Counts::new()),
        Err(error) => Err(Error::file("reading", path)(error)),
    }
}

fn parse(text: &str) -> Result<Counts, usize> {
    let mut counts = Counts::new();
    for (index, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, number) = line.split_once('\t').ok_or(index + 1)?;
        counts.insert(name.to_owned(), number.parse().map_err(|_| index + 1)?);
    }
    Ok(counts)
}

/// Writes the table.
///
/// # Errors
/// [`Error::File`].
pub(crate) fn write(path: &Path, counts: &Counts) -> Result<(), Error> {
    let mut text = String::from(
        "# Instructions verified per program, the maximum over the kernels of `make test-kernels`.\n\
         # Written by `juneau-kernels run --record`.\n",
    );
    for (name, count) in counts {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name}\t{count}");
    }
    let unfinished = path.with_extension("unfinished");
    fs::write(&unfinished, text).map_err(Error::file("writing", &unfinished))?;
    fs::rename(&unfinished, path).map_err(Error::file("renaming", unfinished))
}

/// The largest count of each program over the kernels.
pub(crate) fn maxima(rows: &[Row]) -> Counts {
    let mut counts = Counts::new();
    for verified in rows.iter().flat_map(|row| &row.verified) {
        let count = counts.entry(verified.program.clone()).or_default();
        *count = verified.instructions.max(*count);
    }
    counts
}

/// What is wrong with the counts of a run, one line each; empty when all is well.
pub(crate) fn complaints(seen: &Counts, recorded: &Counts) -> Vec<String> {
    let mut lines = Vec::new();
    let names: BTreeSet<&String> = seen.keys().chain(recorded.keys()).collect();
    for name in names {
        let Some(&count) = seen.get(name) else {
            lines.push(format!("{name} is recorded but was not reported"));
            continue;
        };
        if count > BOUND {
            lines.push(format!("{name}: {count} instructions, above the bound of {BOUND}"));
        }
        match recorded.get(name) {
            None => lines.push(format!("{name} is not recorded; run with --record")),
            // In 64 bits, as a count may be near the top of 32.
            Some(&old) if u64::from(count) * 100 > u64::from(old) * u64::from(100 + GROWTH) => {
                lines.push(format!("{name}: {count} instructions, more than {GROWTH} % above the recorded {old}"));
            }
            Some(_) => {}
        }
    }
    lines
}

/// The table of programs: a column for each kernel, the maximum, and what is recorded.
pub(crate) fn table(rows: &[Row], recorded: &Counts) -> String {
    let rows: Vec<&Row> = rows.iter().filter(|row| !row.verified.is_empty()).collect();
    let mut heading = vec!["program".to_owned()];
    heading.extend(rows.iter().map(|row| row.kernel.clone()));
    heading.extend(["maximum", "recorded"].map(str::to_owned));
    let mut cells = vec![heading];
    let owned: Vec<Row> = rows.iter().map(|row| (*row).clone()).collect();
    for (name, maximum) in maxima(&owned) {
        let mut line = vec![name.clone()];
        for row in &rows {
            let count = row.verified.iter().filter(|verified| verified.program == name);
            line.push(count.map(|verified| verified.instructions).max().map_or("-".to_owned(), |n| n.to_string()));
        }
        line.push(maximum.to_string());
        line.push(recorded.get(&name).map_or("-".to_owned(), u32::to_string));
        cells.push(line);
    }
    report::columns(&cells, 1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::outcome::Verified;

    fn counts(entries: &[(&str, u32)]) -> Counts {
        entries.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    fn row(kernel: &str, entries: &[(&str, u32)]) -> Row {
        Row {
            kernel: kernel.to_owned(),
            version: String::new(),
            counts: crate::outcome::Counts::default(),
            took: std::time::Duration::ZERO,
            note: String::new(),
            verified: entries
                .iter()
                .map(|(program, instructions)| Verified { program: (*program).to_owned(), instructions: *instructions })
                .collect(),
        }
    }

    #[test]
    fn a_table_survives_writing_and_reading() {
        let scratch = crate::command::Scratch::new("table").unwrap();
        let path = scratch.path().join("verified.tsv");
        assert_eq!(read(&path).unwrap(), Counts::new());
        let table = counts(&[("from_pod", 1200), ("to_pod", 30)]);
        write(&path, &table).unwrap();
        assert_eq!(read(&path).unwrap(), table);
    }

    #[test]
    fn a_broken_line_is_named() {
        assert_eq!(parse("# heading\na\t1\n\nb 2\n"), Err(4));
        assert_eq!(parse("a\tmany\n"), Err(1));
    }

    #[test]
    fn growth_up_to_a_tenth_is_accepted() {
        let recorded = counts(&[("a", 1000)]);
        assert!(complaints(&counts(&[("a", 1100)]), &recorded).is_empty());
        assert!(complaints(&counts(&[("a", 10)]), &recorded).is_empty());
        assert_eq!(complaints(&counts(&[("a", 1101)]), &recorded).len(), 1);
    }

    #[test]
    fn the_bound_holds_whatever_is_recorded() {
        let large = counts(&[("a", BOUND + 1)]);
        assert_eq!(complaints(&large, &large).len(), 1);
        let most = counts(&[("a", BOUND)]);
        assert!(complaints(&most, &most).is_empty());
    }

    #[test]
    fn programs_that_come_or_go_are_named() {
        let lines = complaints(&counts(&[("new", 1)]), &counts(&[("old", 1)]));
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with("new is not recorded"));
        assert!(lines[1].starts_with("old is recorded but"));
    }

    #[test]
    fn the_largest_of_all_kernels_counts() {
        let rows = [row("6.1", &[("a", 5), ("b", 9)]), row("6.12", &[("a", 7)]), row("none", &[])];
        assert_eq!(maxima(&rows), counts(&[("a", 7), ("b", 9)]));
        assert_eq!(
            table(&rows, &counts(&[("a", 6)])),
            "program  6.1  6.12  maximum  recorded\n\
             a          5     7        7         6\n\
             b          9     -        9         -\n"
        );
    }
}
