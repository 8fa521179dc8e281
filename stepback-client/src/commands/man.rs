//! `stepback man`: the manual pages, for `make install`.

use std::fs::OpenOptions;
use std::io::Write;
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
    let main = args.dir.join("stepback.1");
    let mut page = OpenOptions::new().append(true).open(&main).at(&main)?;
    page.write_all(MORE.as_bytes()).at(&main)?;
    Ok(0)
}

/// What the main page says beside the options.
const MORE: &str = r#".SH ENVIRONMENT
.TP
\fBSTEPBACK_SOCKET\fR
The daemon's socket.
.TP
\fBSTEPBACK_STATE_DIR\fR
Where checkpoints, registry and log are, rather than \fI$XDG_STATE_HOME/stepback\fR.
.TP
\fBSTEPBACK_CONFIG\fR, \fBSTEPBACK_LOG\fR
The daemon's settings file and the level of its log. A daemon that runs already keeps its own.
.TP
\fBSTEPBACKD\fR
The daemon's program, rather than the one beside \fBstepback\fR or in \fBPATH\fR.
.TP
\fBSTEPBACK_NO_AUTOSTART\fR
\fB1\fR: never start a daemon.
.TP
\fBGIT_PAGER\fR, \fBPAGER\fR, \fBLESS\fR, \fBLV\fR
The pager for long answers on a terminal, and its options.
.TP
\fBNO_COLOR\fR
No colour.
.SH FILES
.TP
\fI$XDG_STATE_HOME/stepback\fR, else \fI~/.local/state/stepback\fR
Checkpoints, registry and log.
.TP
\fI$XDG_RUNTIME_DIR/stepback/stepbackd.sock\fR
The socket; without a runtime directory it is below the state directory.
.TP
\fI$XDG_CONFIG_HOME/stepback/config.toml\fR, else \fI~/.config/stepback/config.toml\fR
Settings.
.TP
\fI.stepbackignore\fR
Paths to leave out of checkpoints, in the form of \fI.gitignore\fR.
.SH SEE ALSO
\fBstepback\-attach\fR(1), \fBstepback\-list\fR(1), \fBstepback\-diff\fR(1), \fBstepback\-rewind\fR(1),
\fBstepback\-redo\fR(1), \fBstepback\-run\fR(1), \fBgit\fR(1), \fBgitignore\fR(5)
"#;
