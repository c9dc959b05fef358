//! Columns for people.

use std::io::{self, Write};

/// Writes rows under a header, each column as wide as its widest cell.
pub(super) fn write(out: &mut impl Write, header: &[&str], rows: &[Vec<String>]) -> io::Result<()> {
    let mut widths: Vec<usize> = header.iter().map(|cell| cell.len()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut line = |cells: &mut dyn Iterator<Item = &str>| -> io::Result<()> {
        let mut text = String::new();
        for (width, cell) in widths.iter().zip(cells) {
            text.push_str(&format!("{cell:<width$}  "));
        }
        writeln!(out, "{}", text.trim_end())
    };
    line(&mut header.iter().copied())?;
    for row in rows {
        line(&mut row.iter().map(String::as_str))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn columns_line_up() {
        let mut out = Vec::new();
        let rows = [vec!["a".to_owned(), "long cell".to_owned()], vec!["bbbbbb".to_owned(), String::new()]];
        super::write(&mut out, &["ONE", "TWO"], &rows).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "ONE     TWO\na       long cell\nbbbbbb\n");
    }
}
