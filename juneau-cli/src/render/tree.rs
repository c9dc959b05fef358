//! Trees of lines.

use super::Style;
use crate::problems::Problem;

/// What a line tells by its colour.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Tone {
    #[default]
    Plain,
    Good,
    Bad,
    Warning,
    Faint,
    Title,
}

/// A line and the lines below it.
#[derive(Debug, Clone, Default)]
pub(super) struct Tree {
    tone: Tone,
    text: String,
    below: Vec<Self>,
}

impl Tree {
    pub(super) fn new(tone: Tone, text: impl Into<String>) -> Self {
        Self { tone, text: text.into(), below: Vec::new() }
    }

    pub(super) fn plain(text: impl Into<String>) -> Self {
        Self::new(Tone::Plain, text)
    }

    pub(super) fn push(&mut self, below: Self) {
        self.below.push(below);
    }

    pub(super) fn with(mut self, below: impl IntoIterator<Item = Self>) -> Self {
        self.below.extend(below);
        self
    }

    /// What is off, and what helps.
    pub(super) fn problem(problem: &Problem) -> Self {
        let text = format!("✗ {}: {}", problem.reason, problem.message);
        Self::new(Tone::Bad, text).with([Self::plain(format!("→ {}", problem.remedy))])
    }

    /// The lines under a heading, if there are any.
    pub(super) fn group(heading: &str, below: Vec<Self>) -> Option<Self> {
        (!below.is_empty()).then(|| Self::new(Tone::Title, heading).with(below))
    }

    pub(super) fn draw(&self, style: Style) -> String {
        let mut text = String::new();
        self.line(&mut text, style, "", "");
        text
    }

    fn line(&self, text: &mut String, style: Style, first: &str, rest: &str) {
        text.push_str(first);
        text.push_str(&style.paint(self.tone, &self.text));
        text.push('\n');
        let last = self.below.len().saturating_sub(1);
        for (place, below) in self.below.iter().enumerate() {
            let (own, under) = if place == last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            below.line(text, style, &format!("{rest}{own}"), &format!("{rest}{under}"));
        }
    }
}

/// Rows with columns as wide as their widest cell.
pub(super) fn columns(rows: &[Vec<String>]) -> Vec<String> {
    let mut widths: Vec<usize> = Vec::new();
    for row in rows {
        for (place, cell) in row.iter().enumerate() {
            let width = cell.chars().count();
            match widths.get_mut(place) {
                Some(known) => *known = (*known).max(width),
                None => widths.push(width),
            }
        }
    }
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_are_drawn_and_columns_line_up() {
        let tree = Tree::plain("a")
            .with([Tree::plain("b").with([Tree::plain("c")]), Tree::new(Tone::Bad, "d").with([Tree::plain("e")])]);
        assert_eq!(tree.draw(Style::default()), "a\n├─ b\n│  └─ c\n└─ d\n   └─ e\n");
        assert!(tree.draw(Style { colour: true }).contains("└─ \u{1b}[31md\u{1b}[0m"));
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        assert_eq!(columns(&[row(["é", "x"]), row(["long", ""])]), ["é     x", "long"]);
    }
}
