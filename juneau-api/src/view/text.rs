//! Text that many objects have in common: names of nodes, Subnets, Pods and interfaces, uids.

use std::collections::HashSet;
use std::sync::Arc;

/// A short text that is shared, not copied.
pub type Text = Arc<str>;

/// Holds each text once.
#[derive(Debug, Clone, Default)]
pub struct Texts {
    known: HashSet<Text>,
    /// How many there were when the unused were last thrown out.
    kept: usize,
}

impl Texts {
    /// Fewer are never looked through.
    const FEW: usize = 1024;

    /// The one copy of this text.
    pub fn share(&mut self, text: &mut Text) {
        match self.known.get(text) {
            Some(known) => *text = Arc::clone(known),
            None => {
                self.known.insert(Arc::clone(text));
            }
        }
    }

    /// The same for a text that may be missing.
    pub fn share_some(&mut self, text: &mut Option<Text>) {
        if let Some(text) = text {
            self.share(text);
        }
    }

    /// Throws out what nobody else holds, once there may be as much of it as of the rest.
    pub fn tidy(&mut self) {
        if self.known.len() > Self::FEW.max(2 * self.kept) {
            self.known.retain(|text| Arc::strong_count(text) > 1);
            self.known.shrink_to_fit();
            self.kept = self.known.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_become_one_and_unused_ones_go() {
        let mut texts = Texts::default();
        let (mut first, mut second): (Text, Text) = ("node-1".into(), "node-1".into());
        assert!(!Arc::ptr_eq(&first, &second));
        texts.share(&mut first);
        texts.share(&mut second);
        assert!(Arc::ptr_eq(&first, &second));
        for number in 0..=Texts::FEW {
            texts.share(&mut number.to_string().into());
        }
        texts.tidy();
        assert_eq!(texts.known.len(), 1);
    }
}
