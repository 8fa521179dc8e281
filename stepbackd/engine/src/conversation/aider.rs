//! aider. `.aider.chat.history.md` and `.aider.input.history` in the project. It has no sessions: all that was ever said
//! is one.

use std::io;
use std::path::PathBuf;

use super::fork::Way;
use super::look::Look;
use super::{Adapter, Found};

/// The conversation's files, which aren't captured as files of the project.
pub(crate) const FILES: [&str; 2] = [".aider.chat.history.md", ".aider.input.history"];

pub(super) struct Aider;

impl Adapter for Aider {
    fn find(&self, look: &mut Look<'_>) -> io::Result<Vec<Found>> {
        let files: Vec<_> = FILES
            .iter()
            .filter_map(|name| Look::path(name))
            .filter(|path| look.stat(path).is_some())
            .collect();
        if files.is_empty() {
            return Ok(Vec::new());
        }
        Ok(vec![Found {
            session: "history".into(),
            cwd: look.root.to_owned(),
            files,
            ..Found::default()
        }])
    }

    fn began(&self, _: &serde_json::Value) -> Option<PathBuf> {
        None
    }

    fn resume(&self, _: &str) -> String {
        "aider --restore-chat-history".into()
    }

    fn programs(&self) -> &'static [&'static str] {
        &["aider", "aider-chat"]
    }

    fn fork_of(&self) -> Way {
        Way::None("aider has one history for each project")
    }
}
