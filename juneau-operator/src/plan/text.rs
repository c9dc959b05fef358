//! Comparing texts with what something would be written as.

use core::fmt::{self, Write as _};

/// Whether `text` is what `written` gives. Nothing is copied: a plan asks this of each of ten thousand objects.
pub(super) fn is(text: &str, written: fmt::Arguments<'_>) -> bool {
    struct Rest<'t>(&'t str);
    impl fmt::Write for Rest<'_> {
        fn write_str(&mut self, part: &str) -> fmt::Result {
            self.0 = self.0.strip_prefix(part).ok_or(fmt::Error)?;
            Ok(())
        }
    }
    let mut rest = Rest(text);
    rest.write_fmt(written).is_ok() && rest.0.is_empty()
}

#[cfg(test)]
mod tests {
    use super::is;
    use core::net::Ipv4Addr;

    #[test]
    fn only_the_very_text_is() {
        let address = Ipv4Addr::new(10, 0, 1, 4);
        assert!(is("10.0.1.4/24", format_args!("{address}/{}", 24)));
        for other in ["", "10.0.1.4", "10.0.1.4/2", "10.0.1.4/240", "10.0.1.04/24", " 10.0.1.4/24", "10.0.1.5/24"] {
            assert!(!is(other, format_args!("{address}/{}", 24)), "{other:?}");
        }
        assert!(is("", format_args!("")));
    }
}
