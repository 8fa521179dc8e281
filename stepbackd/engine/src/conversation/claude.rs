//! Claude Code. `~/.claude/projects/<slug>/<id>.jsonl`, with `<id>/` beside it for sub-agents and long tool results, and
//! `file-history/<id>/`. The slug is the working directory with `-` for whatever is no ASCII letter or digit, cut at 200
//! characters; it can't be read back, so the records say where a session runs.

use std::io;

use super::look::{Head, Look};
use super::{Adapter, Found};

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
                let mut files = vec![path];
                for below in [
                    format!("projects/{slug}/{session}"),
                    format!("file-history/{session}"),
                ] {
                    look.walk(&below, &mut files)?;
                }
                found.push(Found {
                    session,
                    cwd: head.cwd,
                    files,
                    ..Found::default()
                });
            }
        }
        Ok(found)
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

/// The directories that may hold sessions of the root, with their names.
pub(super) fn slug_dirs(look: &mut Look<'_>) -> io::Result<Vec<(crate::path::TreePath, String)>> {
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
