//! Claude Code. `~/.claude/projects/<slug>/<id>.jsonl`, with `<id>/` beside it for sub-agents and long tool results, and
//! `file-history/<id>/`. The slug is the working directory with `-` for whatever is no ASCII letter or digit, cut at 200
//! characters; it can't be read back, so the records say where a session runs.

use std::io;
use std::path::{Path, PathBuf};

use super::homes::above;
use super::look::{Head, Look};
use super::{Adapter, Found};
use crate::path::TreePath;

/// A longer slug is cut here, and a hash follows.
const SLUG_MAX: usize = 200;

pub(super) struct Claude;

impl Adapter for Claude {
    fn find(&self, look: &mut Look<'_>) -> io::Result<Vec<Found>> {
        let mut found = Vec::new();
        let (root, own) = (look.root, slug(&look.root.to_string_lossy()));
        for (dir, slug) in slug_dirs(look)? {
            // Records say where they run, but for those of other versions: then the directory's name has to do.
            let fallback = (slug == own).then_some(root);
            for file in look.list(&dir)? {
                let Some(session) = file.strip_suffix(".jsonl").map(str::to_owned) else {
                    continue;
                };
                let path = dir.join(file.as_bytes());
                let Some(head) = look.head(&path, fallback, head_of) else {
                    continue;
                };
                found.push(Found {
                    files: files_of(look, &session, path)?,
                    session,
                    cwd: head.cwd,
                    ..Found::default()
                });
            }
        }
        Ok(found)
    }

    /// One that is resumed in another directory goes on in its old place.
    fn told(&self, look: &mut Look<'_>, session: &str, transcript: TreePath) -> io::Result<Found> {
        Ok(Found {
            files: files_of(look, session, transcript)?,
            session: session.to_owned(),
            ..Found::default()
        })
    }

    fn began(&self, record: &serde_json::Value) -> Option<PathBuf> {
        head_of(record).map(|head| head.cwd)
    }

    fn home_of(&self, transcript: &Path) -> Option<PathBuf> {
        above(transcript, &["projects", ""])
    }

    fn home_variable(&self) -> Option<&'static str> {
        Some("CLAUDE_CONFIG_DIR")
    }

    fn resume(&self, session: &str) -> String {
        format!("claude --resume {session}")
    }

    fn programs(&self) -> &'static [&'static str] {
        &["claude", "claude-code"]
    }

    fn is_chained(&self) -> bool {
        true
    }
}

/// All files of a session.
fn files_of(look: &mut Look<'_>, session: &str, transcript: TreePath) -> io::Result<Vec<TreePath>> {
    let beside = transcript
        .split_last()
        .map(|(dir, _)| dir.join(session.as_bytes()));
    let mut files = vec![transcript];
    let history = Look::path("file-history").map(|dir| dir.join(session.as_bytes()));
    for below in beside.into_iter().chain(history) {
        look.walk(below, &mut files)?;
    }
    Ok(files)
}

/// The directories that may hold sessions of the root, with their names.
pub(super) fn slug_dirs(look: &mut Look<'_>) -> io::Result<Vec<(TreePath, String)>> {
    let mut wanted = slug(&look.root.to_string_lossy());
    wanted.truncate(SLUG_MAX);
    let Some(projects) = Look::path("projects") else {
        return Ok(Vec::new());
    };
    let names = look.list(&projects)?;
    Ok(names
        .into_iter()
        .filter(|name| name.starts_with(&wanted))
        .map(|name| (projects.join(name.as_bytes()), name))
        .collect())
}

/// As the agent does it: by UTF-16 units.
pub(super) fn slug(path: &str) -> String {
    path.encode_utf16()
        .map(|unit| match u8::try_from(unit) {
            Ok(byte) if byte.is_ascii_alphanumeric() => char::from(byte),
            _ => '-',
        })
        .collect()
}

/// Where a session runs, from a record that says so.
pub(super) fn head_of(record: &serde_json::Value) -> Option<Head> {
    Some(Head {
        cwd: record.get("cwd")?.as_str()?.into(),
        session: record
            .get("sessionId")
            .and_then(|id| id.as_str())
            .unwrap_or_default()
            .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slugs_are_those_of_the_agent() {
        assert_eq!(slug("/x/claude proj_v1.2 é"), "-x-claude-proj-v1-2--");
        assert_eq!(slug("/a/日本"), "-a---");
    }
}
