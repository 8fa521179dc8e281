//! Time, which is always an argument here: the engine has no clock.

use serde::{Deserialize, Serialize};

/// Nanoseconds since 1970 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub i64);

impl Time {
    /// Milliseconds since 1970 UTC.
    #[must_use]
    pub const fn ms(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    /// Seconds since 1970 UTC.
    #[must_use]
    pub const fn seconds(self) -> i64 {
        self.0.div_euclid(1_000_000_000)
    }

    /// From milliseconds since 1970 UTC.
    #[must_use]
    pub const fn from_ms(ms: i64) -> Self {
        Self(ms.saturating_mul(1_000_000))
    }
}

/// In JSON: RFC 3339 with `Z`, to the millisecond.
impl Serialize for Time {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let time = jiff::Timestamp::from_millisecond(self.ms()).map_err(serde::ser::Error::custom)?;
        serializer.collect_str(&format_args!("{time:.3}"))
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let time: jiff::Timestamp = text.parse().map_err(serde::de::Error::custom)?;
        Ok(Self::from_ms(time.as_millisecond()))
    }
}
