//! GitHub Copilot CLI. A directory `~/.copilot/session-state/<id>/` for each session: `events.jsonl`, `workspace.yaml`
//! (which says where it runs), and side files. Lock files aren't part of it.

use std::io;
use std::path::{Path, PathBuf};

use super::homes::above;
use super::look::{Head, Look};
use super::{Adapter, Found};
use crate::path::TreePath;

pub(super) struct Copilot;

impl Adapter for Copilot {
    fn find(&self, look: &mut Look<'_>) -> io::Result<Vec<Found>> {
        let Some(sessions) = Look::path("session-state") else {
            return Ok(Vec::new());
        };
        let mut found = Vec::new();
        for session in look.list(&sessions)? {
            let dir = sessions.join(session.as_bytes());
            let workspace = dir.join(b"workspace.yaml");
            let Some(head) = look.head_of_text(&workspace, |text| head_of(&session, text)) else {
                continue;
            };
            let events = dir.join(b"events.jsonl");
            let mut files = vec![events.clone()];
            let mut all = Vec::new();
            look.walk(dir, &mut all)?;
            files.extend(all.into_iter().filter(|path| *path != events && !is_lock(path)));
            found.push(Found {
                session,
                cwd: head.cwd,
                files,
                ..Found::default()
            });
        }
        Ok(found)
    }

    fn began(&self, record: &serde_json::Value) -> Option<PathBuf> {
        let context = record.get("data")?.get("context")?;
        context.get("cwd")?.as_str().map(PathBuf::from)
    }

    fn home_of(&self, transcript: &Path) -> Option<PathBuf> {
        above(transcript, &["session-state", ""])
    }

    fn home_variable(&self) -> Option<&'static str> {
        Some("COPILOT_HOME")
    }

    fn resume(&self, session: &str) -> String {
        format!("copilot --resume={session}")
    }

    fn programs(&self) -> &'static [&'static str] {
        &["copilot"]
    }
}

fn is_lock(path: &TreePath) -> bool {
    path.as_bytes().ends_with(b".lock")
}

/// `cwd: /a/b`, quoted if it has to be.
fn head_of(session: &str, text: &str) -> Option<Head> {
    let value = text.lines().find_map(|line| line.strip_prefix("cwd:"))?.trim();
    let cwd = match value.as_bytes() {
        [b'"', .., b'"'] => serde_json::from_str(value).ok()?,
        [b'\'', inner @ .., b'\''] => String::from_utf8_lossy(inner).replace("''", "'"),
        _ => value.to_owned(),
    };
    Some(Head {
        session: session.to_owned(),
        cwd: PathBuf::from(cwd),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_is_read_however_it_is_quoted() {
        for (text, cwd) in [
            ("id: x\ncwd: /a b\n", "/a b"),
            ("cwd: \"/a\\\"b\"\n", "/a\"b"),
            ("cwd: '/it''s'\n", "/it's"),
        ] {
            assert_eq!(head_of("s", text).unwrap().cwd, PathBuf::from(cwd));
        }
        assert!(head_of("s", "id: x\n").is_none());
    }
}
