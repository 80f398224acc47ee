//! Numbers and times as people read them.

use std::time::Duration;

/// `1234567` as `1,234,567`.
pub(super) fn grouped(n: u64) -> String {
    match n {
        0..1_000 => n.to_string(),
        _ => format!("{},{:03}", grouped(n / 1_000), n % 1_000),
    }
}

/// A share of a whole with one decimal: `12.5 %`; `0.0 %` if the whole is 0.
pub(super) fn percent(part: u64, whole: u64) -> String {
    format!("{:.1} %", percentage(part, whole))
}

/// A share of a whole, from 0 to 100.
pub(super) fn percentage(part: u64, whole: u64) -> f64 {
    100.0 * to_f64(part) / to_f64(whole.max(1))
}

/// A count as a floating-point number.
#[expect(
    clippy::cast_precision_loss,
    reason = "for display: a double is exact up to 2^53, and nobody reads sixteen digits off a chart"
)]
pub(super) fn to_f64(n: u64) -> f64 {
    n as f64
}

const UNITS: [(&str, &str, u64); 6] = [
    ("day", "d", 86_400_000_000),
    ("hour", "h", 3_600_000_000),
    ("minute", "min", 60_000_000),
    ("second", "s", 1_000_000),
    ("millisecond", "ms", 1_000),
    ("microsecond", "µs", 1),
];

/// A span in the largest unit that divides it: `90 s`, `250 ms`.
pub(super) fn span(span: Duration) -> String {
    let (us, (_, unit, length)) = in_unit(span);
    format!("{} {unit}", grouped(us / length))
}

/// A span after "per" or "any": `minute`, `90 s`.
pub(super) fn span_name(length: Duration) -> String {
    match in_unit(length) {
        (us, (name, _, unit)) if us == unit => name.to_owned(),
        _ => span(length),
    }
}

fn in_unit(span: Duration) -> (u64, (&'static str, &'static str, u64)) {
    let us = to_us(span);
    let divides = |unit: &(_, _, u64)| us > 0 && us.is_multiple_of(unit.2);
    (us, UNITS.into_iter().find(divides).unwrap_or(UNITS[5]))
}

/// A delay, rounded to about three digits: `1.67 s`, `250 ms`, `59.7 s`, `0`.
pub(super) fn delay(delay: Duration) -> String {
    match delay.as_secs_f64() {
        0.0 => "0".to_owned(),
        s if s < 0.001 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{} ms", decimal(s * 1e3)),
        s if s < 600.0 => format!("{} s", decimal(s)),
        s if s < 36_000.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.0} h", s / 3_600.0),
    }
}

/// About three digits, without trailing zeros.
pub(super) fn decimal(n: f64) -> String {
    let text = match n {
        n if n < 10.0 => format!("{n:.2}"),
        n if n < 100.0 => format!("{n:.1}"),
        n => format!("{n:.0}"),
    };
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Lines of at most `width` characters, broken between words.
pub(super) fn wrapped(text: &str, width: usize) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let fits = |line: &String| line.chars().count() + 1 + word.chars().count() <= width;
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if fits(line) => line.extend([" ", word]),
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}

pub(super) fn to_us(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_are_readable() {
        assert_eq!(grouped(300_000), "300,000");
        assert_eq!(grouped(7), "7");
        assert_eq!(percent(1, 8), "12.5 %");
        assert_eq!(percent(0, 0), "0.0 %");
        assert_eq!(span(Duration::from_secs(90)), "90 s");
        assert_eq!(span(Duration::from_secs(60)), "1 min");
        assert_eq!(span_name(Duration::from_secs(60)), "minute");
        assert_eq!(span_name(Duration::from_millis(100)), "100 ms");
        assert_eq!(delay(Duration::from_micros(1_666_334)), "1.67 s");
        assert_eq!(delay(Duration::from_millis(59_700)), "59.7 s");
        assert_eq!(delay(Duration::from_millis(100)), "100 ms");
        assert_eq!(delay(Duration::ZERO), "0");
        assert_eq!(decimal(2.5), "2.5");
        assert_eq!(wrapped("a bc def ghij", 6), "a bc\ndef\nghij");
    }
}
