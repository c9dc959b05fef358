//! The commands, one function each.

mod kubernetes;
mod lifecycle;
mod manifests;
mod show;
mod target;

pub use kubernetes::{kubeconfig, kubectl};
pub use lifecycle::{Up, down, up};
pub use manifests::{add_node, apply, delete, get};
pub use show::{check, logs, status};
pub use target::{capture, exec};

use std::io::Write;

/// Writes to standard output. Who closed it wants no more.
pub(crate) fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).ok();
}

/// Columns, as wide as they need to be.
fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..count).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [vec!["NODE".to_owned(), "PID".to_owned()], vec!["a-long-name".to_owned(), "7".to_owned()]];
        assert_eq!(columns(&rows), "NODE         PID\na-long-name  7\n");
    }
}
