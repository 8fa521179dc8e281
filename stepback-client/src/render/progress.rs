//! One line on a terminal that says how far long work is.

use std::time::Instant;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use stepback_proto::Progress;

use super::path::one_line;

/// Work that ends sooner isn't worth a line, in milliseconds.
const QUIET_MS: u128 = 200;

/// The line; it appears with the first report that comes late enough and goes when it is dropped or cleared.
pub struct ProgressLine {
    wanted: bool,
    since: Instant,
    bar: Option<ProgressBar>,
}

impl ProgressLine {
    /// A line that is drawn only if `wanted`.
    pub fn new(wanted: bool) -> Self {
        Self {
            wanted,
            since: Instant::now(),
            bar: None,
        }
    }

    /// Draws `progress`.
    pub fn show(&mut self, progress: &Progress) {
        if !self.wanted || (self.bar.is_none() && self.since.elapsed().as_millis() < QUIET_MS) {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            bar.set_style(plain());
            bar
        });
        if progress.total > 0 {
            if bar.length() != Some(progress.total) {
                bar.set_length(progress.total);
                bar.set_style(with_total());
            }
        } else if bar.length().is_some() {
            bar.unset_length();
            bar.set_style(plain());
        }
        bar.set_message(one_line(&progress.what));
        bar.set_position(progress.done);
    }

    /// Takes the line away, so that something else can be printed.
    pub fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.clear();
    }
}

fn plain() -> ProgressStyle {
    ProgressStyle::with_template("{spinner} {msg}: {human_pos}").expect("a fixed template")
}

fn with_total() -> ProgressStyle {
    ProgressStyle::with_template("{spinner} {msg}: {human_pos} of {human_len} {wide_bar}")
        .expect("a fixed template")
}
