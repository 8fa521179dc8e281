//! What was measured, again and again, and what is made of it.

use std::time::Instant;

/// Measurements of one thing, in the order in which they were taken.
#[derive(Debug, Clone, Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// Nothing yet.
    pub const fn of_none() -> Self {
        Self(Vec::new())
    }

    /// Of one measurement.
    pub fn of(value: f64) -> Self {
        Self(vec![value])
    }

    /// Adds one.
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The one in the middle.
    pub fn median(&self) -> f64 {
        self.percentile(50.0)
    }

    /// So many in a hundred are at most this.
    pub fn percentile(&self, percent: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().saturating_sub(1);
        let at = (percent / 100.0 * last as f64).ceil() as usize;
        sorted.get(at.min(last)).copied().unwrap_or(f64::NAN)
    }

    /// The least and the greatest.
    pub fn spread(&self) -> (f64, f64) {
        (self.percentile(0.0), self.percentile(100.0))
    }

    /// This divided by `other`, round by round where both have as many rounds.
    pub fn over(&self, other: &Self) -> Self {
        if self.len() == other.len() {
            return Self(self.0.iter().zip(&other.0).map(|(a, b)| a / b).collect());
        }
        Self::of(self.median() / other.median())
    }
}

/// Does `work`; its result and how long it took, in milliseconds.
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed().as_secs_f64() * 1000.0)
}
