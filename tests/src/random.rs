//! Numbers that look random and can be had again.

use std::time::{SystemTime, UNIX_EPOCH};

/// A seeded generator (splitmix64). The seed is printed, and taken from `STEPBACK_SEED` when that is set.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A generator whose seed is printed, so that a failing run can be had again.
    #[must_use]
    pub fn new(what: &str) -> Self {
        let seed = std::env::var("STEPBACK_SEED")
            .ok()
            .and_then(|s| s.parse().ok())
            .unwrap_or_else(|| {
                SystemTime::now()
                    .duration_since(UNIX_EPOCH)
                    .map_or(1, |d| d.subsec_nanos().into())
            });
        println!("{what}: STEPBACK_SEED={seed}");
        Self(seed)
    }

    /// With this seed.
    #[must_use]
    pub const fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    #[allow(clippy::should_implement_trait, reason = "not an iterator: it never ends")]
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which isn't 0.
    pub const fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}
