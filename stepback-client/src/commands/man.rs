//! `stepback man`: the manual pages, for `make install`.

use std::path::PathBuf;

use clap::CommandFactory;

use crate::cli::Cli;
use crate::error::{At, Result};

/// Write the manual pages into a directory.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The directory, which must exist
    dir: PathBuf,
}

pub fn run(args: &Args) -> Result<u8> {
    clap_mangen::generate_to(Cli::command(), &args.dir).at(&args.dir)?;
    Ok(0)
}
