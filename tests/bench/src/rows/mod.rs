//! What is measured, one group of rows in each file.

pub mod client;
pub mod daemon;
pub mod hook;
pub mod rewind;
pub mod sizes;

use stepback_tests::Sandbox;

use crate::peers::Pythons;
use crate::report::Report;

/// What all groups share.
pub struct Bench<'a> {
    pub sandbox: &'a Sandbox,
    pub report: Report,
    pub pythons: Pythons,
    /// How many rounds: at least five, so that the middle means something.
    pub rounds: usize,
    /// Small trees, for work on the bench itself.
    pub quick: bool,
}

impl Bench<'_> {
    /// A number of files, or so much less when it has to be quick.
    pub const fn scaled(&self, files: usize) -> usize {
        if self.quick { files / 10 } else { files }
    }
}

/// A number of files as people say it.
pub fn short(files: usize) -> String {
    match files {
        n if n >= 1_000_000 && n % 1_000_000 == 0 => format!("{}M", n / 1_000_000),
        n if n >= 1_000 && n % 1_000 == 0 => format!("{}k", n / 1_000),
        n => n.to_string(),
    }
}
