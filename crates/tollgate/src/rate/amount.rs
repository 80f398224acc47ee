//! Amounts and spans of time as people write them.

/// `1234567` as `1,234,567`.
pub(crate) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

const UNITS: [(&str, u64); 6] = [
    ("d", 86_400_000_000),
    ("h", 3_600_000_000),
    ("m", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
    ("us", 1),
];

/// A span in the largest unit that divides it: `90s`, `1m`, `250ms`.
pub(crate) fn span_text(us: u64) -> String {
    let (unit, length) = UNITS
        .into_iter()
        .find(|(_, length)| us.is_multiple_of(*length))
        .unwrap_or(("us", 1));
    format!("{}{unit}", us / length)
}

/// A span behind a slash: `s` for `1s`.
pub(crate) fn period_text(us: u64) -> String {
    let text = span_text(us);
    match text.strip_prefix('1') {
        Some(unit) if unit.starts_with(char::is_alphabetic) => unit.to_owned(),
        _ => text,
    }
}

/// The length of a named unit of time, in microseconds.
pub(crate) fn unit_us(name: &str) -> Option<u64> {
    Some(match name {
        "us" | "µs" => 1,
        "ms" | "millisecond" | "milliseconds" => 1_000,
        "s" | "sec" | "secs" | "second" | "seconds" => 1_000_000,
        "m" | "min" | "mins" | "minute" | "minutes" => 60_000_000,
        "h" | "hr" | "hour" | "hours" => 3_600_000_000,
        "d" | "day" | "days" => 86_400_000_000,
        "w" | "week" | "weeks" => 604_800_000_000,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_read_well() {
        assert_eq!(grouped(4_000_000_000), "4,000,000,000");
        assert_eq!(grouped(999), "999");
        assert_eq!(span_text(90_000_000), "90s");
        assert_eq!(span_text(1_500), "1500us");
        assert_eq!(period_text(60_000_000), "m");
        assert_eq!(period_text(10_000_000), "10s");
    }
}
