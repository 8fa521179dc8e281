//! Values of settings: each is checked where it is read, so that an error names its line.

use std::time::Duration;

use serde::Deserialize;
use stepback_engine::engine::Budget;
use stepback_engine::retention::Policy;
use stepback_engine::rules::check_include;

use crate::error::Result;
use crate::logging;

/// No time in the settings is longer: a clock still holds what comes after it.
pub(super) const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// More roots than this are attached nowhere.
const CACHE_ROOTS_MAX: usize = 1_000_000;

/// A number of bytes, written as `"100 MiB"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Size(pub u64);

impl TryFrom<String> for Size {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let digits = text
            .trim_end_matches(|c: char| c.is_ascii_alphabetic())
            .trim_end();
        let unit = text[digits.len()..].trim_start();
        let factor: u64 = match unit {
            "" => 1,
            "K" | "KiB" => 1 << 10,
            "M" | "MiB" => 1 << 20,
            "G" | "GiB" => 1 << 30,
            _ => return Err(format!("{text:?} is not a size: the units are KiB, MiB and GiB")),
        };
        let number: u64 = digits
            .trim()
            .parse()
            .map_err(|_| format!("{text:?} is not a size, such as \"100 MiB\""))?;
        number
            .checked_mul(factor)
            .map(Self)
            .ok_or_else(|| format!("{text:?} is too large"))
    }
}

/// The type of a file system: the number that `stat -f -c %t` prints, in hexadecimal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct FileSystem(pub(super) u64);

impl TryFrom<String> for FileSystem {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        u64::from_str_radix(text.trim_start_matches("0x"), 16)
            .map(Self)
            .map_err(|_| format!("{text:?} is no type of a file system: `stat -f -c %t` prints it"))
    }
}

/// A time in `MS` milliseconds, also a part of one; at most a year.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "f64")]
pub(super) struct Span<const MS: u64>(pub(super) Duration);

impl<const MS: u64> TryFrom<f64> for Span<MS> {
    type Error = String;

    fn try_from(number: f64) -> Result<Self, String> {
        if number.is_sign_negative() || number.is_nan() {
            return Err(format!("{number} is no length of time"));
        }
        let time = Duration::try_from_secs_f64(number * MS as f64 / 1000.0).ok();
        time.filter(|time| *time <= YEAR)
            .map(Self)
            .ok_or_else(|| format!("{number} is too long: it must be at most a year"))
    }
}

pub(super) type Millis = Span<1>;

pub(super) type Seconds = Span<1000>;

pub(super) type Minutes = Span<60_000>;

/// How many roots may keep their tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "usize")]
pub(super) struct CacheRoots(pub(super) usize);

impl TryFrom<usize> for CacheRoots {
    type Error = String;

    fn try_from(number: usize) -> Result<Self, String> {
        match number {
            0..=CACHE_ROOTS_MAX => Ok(Self(number)),
            _ => Err(format!("cache_roots is at most {CACHE_ROOTS_MAX}")),
        }
    }
}

/// What is logged.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Filter(pub(super) String);

impl TryFrom<String> for Filter {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        logging::check(&text)?;
        Ok(Self(text))
    }
}

/// An include pattern.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Glob(pub(super) String);

impl TryFrom<String> for Glob {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match check_include(&text) {
            Ok(()) => Ok(Self(text)),
            Err(why) => Err(format!("the include pattern {text:?} can't be used: {why}")),
        }
    }
}

/// What is set of which checkpoints are kept for how long: the fields of [`Policy`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Retention {
    all_hours: Option<u32>,
    minutely_hours: Option<u32>,
    hourly_days: Option<u32>,
    daily_days: Option<u32>,
    newest: Option<u32>,
}

impl Retention {
    pub(super) fn over(&self, policy: Policy) -> Policy {
        Policy {
            all_hours: self.all_hours.unwrap_or(policy.all_hours),
            minutely_hours: self.minutely_hours.unwrap_or(policy.minutely_hours),
            hourly_days: self.hourly_days.unwrap_or(policy.hourly_days),
            daily_days: self.daily_days.unwrap_or(policy.daily_days),
            newest: self.newest.unwrap_or(policy.newest),
        }
    }
}

/// What is set of how much disk the stores may use: fields of [`Budget`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Quota {
    store: Option<Size>,
    total: Option<Size>,
    free: Option<Size>,
}

impl Quota {
    pub(super) fn over(&self, budget: Budget) -> Budget {
        Budget {
            store: self.store.map_or(budget.store, |size| size.0),
            total: self.total.map_or(budget.total, |size| size.0),
            free: self.free.map_or(budget.free, |size| size.0),
            ..budget
        }
    }
}
