//! The table in `docs/conformance.md`.

use crate::error::{Error, Result};
use crate::list::{GROUP, List};
use std::fmt::Write as _;
use std::path::Path;

/// The lines between which the table stands.
pub const MARKS: (&str, &str) = ("<!-- list: made by juneau-conformance document -->", "<!-- end of list -->");

/// The table, with how many tests have which result before it.
#[must_use]
pub fn table(list: &List) -> String {
    let counts = list.counts();
    let count = |result: &str| counts.get(result).copied().unwrap_or_default();
    let (passes, fails, rest) = (count("passes"), count("fails"), count("not run"));
    let mut text = format!("{passes} pass, {fails} fail, {rest} were not run.\n\n");
    text.push_str("| test | result | why not |\n|---|---|---|\n");
    for entry in list.entries() {
        let (result, why) = entry.expected.told();
        let name = entry.name.strip_prefix(GROUP).unwrap_or(&entry.name).replace('|', "\\|");
        // Into a String: it cannot fail.
        let _ = writeln!(text, "| {name} | {result} | {why} |");
    }
    text
}

/// The page with the table of this list in the place of the one that it has.
///
/// # Errors
/// [`Error::Marks`] when the page has no place for one.
pub fn with_table(path: &Path, page: &str, list: &List) -> Result<String> {
    let (begin, end) = MARKS;
    let marks = || Error::Marks { path: path.to_owned(), begin, end };
    let (before, rest) = page.split_once(begin).ok_or_else(marks)?;
    let (_, after) = rest.split_once(end).ok_or_else(marks)?;
    Ok(format!("{before}{begin}\n\n{}\n{end}{after}", table(list)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_table_is_replaced() {
        let list = List::parse("= passes\nPods one\n= fails: needs Services\nServices a|b\n").unwrap();
        let page = format!("# Title\n{}\nold\n{}\nafter\n", MARKS.0, MARKS.1);
        let made = with_table(Path::new("page.md"), &page, &list).unwrap();
        assert!(made.starts_with("# Title\n") && made.ends_with("\nafter\n") && !made.contains("old"), "{made}");
        assert!(made.contains("1 pass, 1 fail, 0 were not run.\n"), "{made}");
        assert!(made.contains("| Pods one | passes |  |\n| Services a\\|b | fails | needs Services |\n"), "{made}");
        assert_eq!(with_table(Path::new("page.md"), &made, &list).unwrap(), made);
        assert!(matches!(with_table(Path::new("page.md"), "# Title", &list), Err(Error::Marks { .. })));
    }
}
