//! Reports as text. Pure functions.

mod describe;
mod status;
mod trace;
mod tree;

pub use describe::description;
pub use status::status;
pub use trace::trace;

use crate::report::{EventPart, VersionReport};
use tree::{Tone, Tree};

/// How text is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Style {
    /// With colours, as terminals understand them.
    pub colour: bool,
}

impl Style {
    fn paint(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Plain => return text.to_owned(),
            Tone::Good => "32",
            Tone::Bad => "31",
            Tone::Warning => "33",
            Tone::Faint => "2",
            Tone::Title => "1",
        };
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// A span of time in seconds, as `kubectl` writes ages.
#[must_use]
pub(crate) fn span(seconds: i64) -> String {
    match seconds.max(0) {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7200 => format!("{}m", seconds / 60),
        seconds @ 7200..172_800 => format!("{}h", seconds / 3600),
        i64::MAX => "a long time".to_owned(),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// One Event on one line.
fn event(event: &EventPart) -> Tree {
    let times = if event.count > 1 { format!(" ({} times)", event.count) } else { String::new() };
    let text = format!("{} ago  {}  {}{times}  {}", span(event.seconds_ago), event.object, event.reason, event.message);
    Tree::new(if event.warning { Tone::Warning } else { Tone::Plain }, text)
}

/// What runs here and there.
#[must_use]
pub fn version(report: &VersionReport) -> String {
    let mut text = format!("kubectl-juneau  {}\n", report.client);
    if let Some(server) = &report.server {
        text.push_str(&format!("API server      {server}\n"));
    }
    for definition in &report.definitions {
        text.push_str(&format!("definitions     {}: {}\n", definition.api_version, definition.kinds.join(", ")));
    }
    if !report.missing.is_empty() {
        text.push_str(&format!(
            "missing         {}; apply them: juneau-operator crds | kubectl apply --server-side -f -\n",
            report.missing.join(", ")
        ));
    }
    if let Some(why) = &report.not_shown {
        text.push_str(&format!("not shown       {why}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn spans_are_short() {
        for (seconds, text) in
            [(0, "0s"), (-3, "0s"), (119, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h"), (172_800, "2d")]
        {
            assert_eq!(super::span(seconds), text);
        }
    }
}
