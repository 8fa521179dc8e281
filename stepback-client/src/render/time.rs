//! Times: RFC 3339 for programs; the clock and an age for people.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// RFC 3339 in UTC with `Z`, always with milliseconds.
pub fn rfc3339(ms: i64) -> String {
    format!("{:.3}", timestamp(ms))
}

/// The clock time in `zone`, with the date unless it is that of `now`.
pub fn clock(ms: i64, now: Timestamp, zone: &TimeZone) -> String {
    let at = timestamp(ms).to_zoned(zone.clone());
    let form = if at.date() == now.to_zoned(zone.clone()).date() {
        "%H:%M:%S"
    } else {
        "%Y-%m-%d %H:%M:%S"
    };
    at.strftime(form).to_string()
}

/// How long ago, in the largest unit that fits: `12s`, `3m`, `5h`, `2d`.
pub fn age(ms: i64, now: Timestamp) -> String {
    let seconds = now.as_millisecond().saturating_sub(ms).max(0) / 1000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// A clock time with its age: `14:05:07 (3m ago)`.
pub fn both(ms: i64, now: Timestamp, zone: &TimeZone) -> String {
    format!("{} ({} ago)", clock(ms, now, zone), age(ms, now))
}

fn timestamp(ms: i64) -> Timestamp {
    // Out of jiff's range (year 9999) only if the daemon sent nonsense.
    Timestamp::from_millisecond(ms).unwrap_or(if ms < 0 { Timestamp::MIN } else { Timestamp::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_for_programs_and_for_people() {
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        let now: Timestamp = "2026-11-29T12:00:00Z".parse().unwrap();
        let at = |text: &str| text.parse::<Timestamp>().unwrap().as_millisecond();
        assert_eq!(rfc3339(at("2026-11-29T11:57:00Z")), "2026-11-29T11:57:00.000Z");
        assert_eq!(rfc3339(at("2026-11-29T11:57:00.25Z")), "2026-11-29T11:57:00.250Z");
        assert_eq!(both(at("2026-11-29T11:57:00Z"), now, &zone), "12:57:00 (3m ago)");
        assert_eq!(
            both(at("2026-11-27T11:57:00Z"), now, &zone),
            "2026-11-27 12:57:00 (2d ago)"
        );
        assert_eq!(age(at("2026-11-29T12:00:05Z"), now), "0s");
        assert_eq!(age(at("2026-11-29T07:00:00Z"), now), "5h");
    }
}
