//! Durations as Kubernetes writes them: `60s`, `1h30m`, `1.5h`.

use core::time::Duration;

/// Why a text is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a duration; write numbers with units ns, us, ms, s, m or h, as in 60s or 1h30m")]
pub struct DurationError {
    /// The text that was given.
    pub text: String,
}

/// Nanoseconds of each unit. A unit that another one begins with comes after it.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Reads a duration as Go's `time.ParseDuration` does, except that it cannot be negative.
///
/// # Errors
/// [`DurationError`] when the text is none, or is longer than 2^63 ns (292 years).
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let error = || DurationError { text: text.to_owned() };
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(error());
    }
    let mut nanoseconds: u128 = 0;
    while !rest.is_empty() {
        let (whole, after) = digits(rest);
        let (fraction, after) = after.strip_prefix('.').map_or(("", after), digits);
        if whole.is_empty() && fraction.is_empty() {
            return Err(error());
        }
        let (unit, scale) = UNITS.into_iter().find(|(unit, _)| after.starts_with(unit)).ok_or_else(error)?;
        rest = &after[unit.len()..];
        let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| error())? };
        nanoseconds = whole.checked_mul(scale.into()).and_then(|n| nanoseconds.checked_add(n)).ok_or_else(error)?;
        let mut place = u128::from(scale);
        for digit in fraction.bytes() {
            place /= 10;
            nanoseconds += place * u128::from(digit - b'0');
        }
    }
    i64::try_from(nanoseconds).ok().and_then(|n| u64::try_from(n).ok()).map(Duration::from_nanos).ok_or_else(error)
}

/// The decimal digits that a text begins with, and the rest.
fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

#[cfg(test)]
mod tests {
    use super::parse_duration;
    use core::time::Duration;

    #[test]
    fn durations_are_read_as_go_writes_them() {
        for (text, milliseconds) in [
            ("0", 0),
            ("0s", 0),
            ("60s", 60_000),
            ("1h", 3_600_000),
            ("1h0m0s", 3_600_000),
            ("1h30m", 5_400_000),
            ("1.5h", 5_400_000),
            (".5s", 500),
            ("1.s", 1_000),
            ("+2m", 120_000),
            ("250ms", 250),
            ("1500µs", 1),
        ] {
            assert_eq!(parse_duration(text).unwrap().as_millis(), milliseconds, "{text}");
        }
        assert_eq!(parse_duration("7ns").unwrap(), Duration::from_nanos(7));
    }

    #[test]
    fn what_is_no_duration_says_so() {
        for text in [
            "",
            "+",
            "5",
            "s",
            ".s",
            "-1s",
            "1 s",
            "1d",
            "1h ",
            "soon",
            "9999999999h",
            "99999999999999999999999999999999999999999999s",
        ] {
            let error = parse_duration(text).unwrap_err();
            assert!(error.to_string().starts_with(&format!("{text:?} is not a duration; write")), "{error}");
        }
    }
}
