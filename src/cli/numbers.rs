//! Numbers of options. Errors state what is allowed; `clap` adds the option and its value.

use std::num::IntErrorKind;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Returns a parser of whole numbers in a range.
pub(crate) fn whole<T: TryFrom<u64>>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let found = number(text).filter(|number| range.contains(number));
        found.and_then(|number| T::try_from(number).ok()).ok_or_else(|| {
            let (low, high) = (range.start(), range.end());
            let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            match *high {
                // The end of a range without a bound is named only for a number above it.
                ANY if !is_digits || number(text).is_some() => {
                    format!("a whole number of at least {low} is needed")
                }
                high => format!("a whole number from {low} to {high} is needed"),
            }
        })
    }
}

/// The end of ranges without a bound of their own.
pub(crate) const ANY: u64 = u64::MAX;

/// Parses a number of one list or range of numbers.
pub(crate) fn part(text: &str) -> Result<usize, String> {
    text.parse().map_err(|e: std::num::ParseIntError| match e.kind() {
        IntErrorKind::PosOverflow => format!("`{text}` is above {}, the highest number", usize::MAX),
        _ => format!("`{text}` is not a whole number of at least 0"),
    })
}

fn number(text: &str) -> Option<u64> {
    text.parse().ok()
}

/// Parses a time in seconds in a range.
pub(crate) fn seconds(text: &str, range: RangeInclusive<f64>) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds) if range.contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!("a number of seconds from {} to {} is needed", range.start(), range.end())),
    }
}

/// Returns a time in milliseconds. One rounded operation on whole nanoseconds: its shortest text is exact.
pub(crate) fn milliseconds(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_milliseconds_are_exact() {
        let text =
            |nanoseconds| serde_json::json!(milliseconds(Duration::from_nanos(nanoseconds))).to_string();
        assert_eq!([90, 280, 338_846].map(text), ["0.00009", "0.00028", "0.338846"].map(str::to_owned));
        for n in 1..10_000 {
            assert_eq!(text(1_000_000 + n), format!("1.{n:06}").trim_end_matches('0'));
        }
    }

    #[test]
    fn errors_state_what_is_allowed() {
        assert_eq!(whole::<usize>(1..=1024)("1024"), Ok(1024));
        assert_eq!(whole::<u64>(0..=ANY)("18446744073709551615"), Ok(u64::MAX));
        for wrong in ["0", "1025", "-1", "1e3", "", "99999999999999999999"] {
            let error = whole::<usize>(1..=1024)(wrong).unwrap_err();
            assert_eq!(error, "a whole number from 1 to 1024 is needed", "{wrong}");
        }
        assert_eq!(whole::<u64>(0..=ANY)("-1").unwrap_err(), "a whole number of at least 0 is needed");
        assert_eq!(whole::<u64>(1..=ANY)("0").unwrap_err(), "a whole number of at least 1 is needed");
        let above = whole::<u64>(0..=ANY)("99999999999999999999").unwrap_err();
        assert_eq!(above, format!("a whole number from 0 to {} is needed", u64::MAX));
        assert!(part("99999999999999999999").unwrap_err().ends_with("the highest number"));
        assert_eq!(part("-1").unwrap_err(), "`-1` is not a whole number of at least 0");
    }

    #[test]
    fn times() {
        assert_eq!(seconds("8", 0.0..=10.0), Ok(Duration::from_secs(8)));
        assert_eq!(seconds("0.25", 0.001..=10.0), Ok(Duration::from_millis(250)));
        for wrong in ["", "-1", "nan", "inf", "1e40", "8s", "1e-9"] {
            let error = seconds(wrong, 0.001..=86_400.0).unwrap_err();
            assert_eq!(error, "a number of seconds from 0.001 to 86400 is needed", "{wrong}");
        }
    }
}
