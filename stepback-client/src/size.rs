//! SIZE on the command line, and sizes for people.

const UNITS: [(&str, u64); 6] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("K", 1 << 10),
    ("M", 1 << 20),
    ("G", 1 << 30),
];

/// Bytes of a SIZE: a number, or one with `KiB`, `MiB`, `GiB` (`K`, `M`, `G` are the same), with or without a space.
///
/// # Errors
/// A sentence for people, when it is no SIZE or too large.
pub fn parse(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let (digits, unit) = UNITS
        .iter()
        .find_map(|(name, unit)| text.strip_suffix(name).map(|rest| (rest.trim_end(), *unit)))
        .unwrap_or((text, 1));
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err("a size is a number of bytes, or one with KiB, MiB or GiB".into());
    }
    digits
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(unit))
        .ok_or_else(|| "this size is too large".into())
}

/// A number of bytes for people: `812 B`, `1.4 MiB`.
pub fn human(bytes: u64) -> String {
    let mut unit = "B";
    let mut tenths = bytes.saturating_mul(10);
    for next in ["KiB", "MiB", "GiB", "TiB"] {
        if tenths < 10_240 {
            break;
        }
        tenths /= 1024;
        unit = next;
    }
    if unit == "B" {
        format!("{bytes} B")
    } else {
        format!("{}.{} {unit}", tenths / 10, tenths % 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        assert_eq!(parse("0"), Ok(0));
        assert_eq!(parse("12345"), Ok(12345));
        assert_eq!(parse("1KiB"), Ok(1024));
        assert_eq!(parse("10 MiB"), Ok(10 << 20));
        assert_eq!(parse("5 GiB"), Ok(5 << 30));
        assert_eq!(parse("2K"), Ok(2048));
        assert_eq!(parse("3 M"), Ok(3 << 20));
        assert_eq!(parse("4G"), Ok(4 << 30));
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in [
            "",
            "KiB",
            "-1",
            "+1",
            "1.5MiB",
            "1MB",
            "1 kib",
            "x",
            "1 2",
            "99999999999999999999",
            "17179869184G",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_read_well() {
        assert_eq!(human(0), "0 B");
        assert_eq!(human(1023), "1023 B");
        assert_eq!(human(1024), "1.0 KiB");
        assert_eq!(human(1536 << 10), "1.5 MiB");
        assert_eq!(human(5 << 30), "5.0 GiB");
    }
}
