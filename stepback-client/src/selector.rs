//! IDs: the ways in which people name a checkpoint.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use stepback_proto::Selector;

/// The forms of an ID, for hints.
pub const FORMS: &str = "an ID is 7, latest, first, ~2, @10m, @2026-11-29T14:05 or session:NAME";

/// What `text` selects, with times resolved against `now` in `zone`.
///
/// # Errors
/// A sentence for people, when it is no ID.
pub fn parse(text: &str, now: Timestamp, zone: &TimeZone) -> Result<Selector, String> {
    let no_id = || format!("`{text}` is not an ID");
    if let Some(rest) = text.strip_prefix('~') {
        return count(rest).map(Selector::Back).ok_or_else(no_id);
    }
    if let Some(rest) = text.strip_prefix('@') {
        return moment(rest, now, zone)
            .map(|at| Selector::At(at.as_millisecond()))
            .ok_or_else(no_id);
    }
    if let Some(name) = text.strip_prefix("session:") {
        return if name.is_empty() {
            Err(no_id())
        } else {
            Ok(Selector::Session(name.to_owned()))
        };
    }
    if let Some(turn) = text.strip_prefix("turn:") {
        let selected = match turn.strip_prefix('~') {
            Some(back) => count(back).map(Selector::TurnBack),
            None => count(turn).map(Selector::Turn),
        };
        return selected.ok_or_else(no_id);
    }
    match text {
        "latest" => Ok(Selector::Latest),
        "first" => Ok(Selector::First),
        _ => count(text.strip_prefix('#').unwrap_or(text))
            .map(Selector::Number)
            .ok_or_else(no_id),
    }
}

/// A number in digits alone. One that is too large for us is as unknown as the largest: the daemon says so.
fn count(text: &str) -> Option<u64> {
    (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().unwrap_or(u64::MAX))
}

/// `10m`, `2026-11-29T14:05[:SS]` in `zone`, or a time with its own `Z`, as `--json` prints it.
fn moment(text: &str, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    if let Some(unit) = text.chars().last().filter(|c| "smhd".contains(*c)) {
        let n = i64::try_from(count(&text[..text.len() - 1])?).ok()?;
        let seconds = n.checked_mul(match unit {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            _ => 86_400,
        })?;
        // Further back than time goes is before every checkpoint.
        return Some(
            now.checked_sub(seconds.min(1 << 33).seconds())
                .unwrap_or(Timestamp::MIN),
        );
    }
    if text.ends_with('Z') {
        return text.parse().ok();
    }
    let shape: String = text
        .chars()
        .map(|c| if c.is_ascii_digit() { '0' } else { c })
        .collect();
    if shape != "0000-00-00T00:00" && shape != "0000-00-00T00:00:00" {
        return None;
    }
    let civil: DateTime = text.parse().ok()?;
    let start = zone.to_timestamp(civil).ok()?;
    // A time is shown to the second, so that a checkpoint shown with this second is at or before it.
    start.checked_add(999.milliseconds()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn select(text: &str) -> Result<Selector, String> {
        let now: Timestamp = "2026-11-29T12:00:00Z".parse().unwrap();
        parse(text, now, &TimeZone::get("Europe/Berlin").unwrap())
    }

    fn at(text: &str) -> Selector {
        Selector::At(text.parse::<Timestamp>().unwrap().as_millisecond())
    }

    #[test]
    fn every_form_is_read() {
        assert_eq!(select("7"), Ok(Selector::Number(7)));
        assert_eq!(select("#7"), Ok(Selector::Number(7)));
        assert_eq!(select("latest"), Ok(Selector::Latest));
        assert_eq!(select("first"), Ok(Selector::First));
        assert_eq!(select("~2"), Ok(Selector::Back(2)));
        assert_eq!(select("~0"), Ok(Selector::Back(0)));
        assert_eq!(select("session:a-b_c"), Ok(Selector::Session("a-b_c".into())));
        assert_eq!(select("turn:3"), Ok(Selector::Turn(3)));
        assert_eq!(select("turn:~1"), Ok(Selector::TurnBack(1)));
        assert_eq!(select("99999999999999999999999"), Ok(Selector::Number(u64::MAX)));
    }

    #[test]
    fn times_are_of_the_zone() {
        assert_eq!(select("@90s"), Ok(at("2026-11-29T11:58:30Z")));
        assert_eq!(select("@10m"), Ok(at("2026-11-29T11:50:00Z")));
        assert_eq!(select("@2h"), Ok(at("2026-11-29T10:00:00Z")));
        assert_eq!(select("@1d"), Ok(at("2026-11-28T12:00:00Z")));
        assert_eq!(select("@2026-11-29T12:05"), Ok(at("2026-11-29T11:05:00.999Z")));
        assert_eq!(select("@2026-07-29T12:05:07"), Ok(at("2026-07-29T10:05:07.999Z")));
        assert_eq!(
            select("@2026-11-29T12:05:07.25Z"),
            Ok(at("2026-11-29T12:05:07.250Z"))
        );
        assert!(matches!(select("@99999999999d"), Ok(Selector::At(_))));
    }

    #[test]
    fn what_is_no_id_is_refused() {
        for text in [
            "",
            "#",
            "~",
            "~x",
            "-1",
            "+1",
            "7x",
            "@",
            "@m",
            "@10",
            "@10w",
            "@-1m",
            "@2026-11-29",
            "@2026-13-01T00:00",
            "@2026-11-29T25:00",
            "session:",
            "turn:",
            "turn:~",
            "turn:x",
            "Latest",
            "äs",
            "@ä",
        ] {
            assert!(select(text).is_err(), "{text}");
        }
    }
}
