//! Qwen Code. `~/.qwen/projects/<slug>/chats/<id>.jsonl`, the slug as Claude Code's. A record names the one before; a
//! chain that is broken loses all that is before the break.

use std::io;
use std::path::{Path, PathBuf};

use super::homes::above;
use super::look::Look;
use super::{Adapter, Found, claude};

pub(super) struct Qwen;

impl Adapter for Qwen {
    fn find(&self, look: &mut Look<'_>) -> io::Result<Vec<Found>> {
        let mut found = Vec::new();
        let (root, own) = (look.root, claude::slug(&look.root.to_string_lossy()));
        for (dir, slug) in claude::slug_dirs(look)? {
            let fallback = (slug == own).then_some(root);
            let chats = dir.join(b"chats");
            for file in look.list(&chats)? {
                let Some(session) = file.strip_suffix(".jsonl").map(str::to_owned) else {
                    continue;
                };
                let path = chats.join(file.as_bytes());
                let Some(head) = look.head(&path, fallback, claude::head_of) else {
                    continue;
                };
                let mut files = vec![path];
                look.walk(chats.join(session.as_bytes()), &mut files)?;
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

    fn began(&self, record: &serde_json::Value) -> Option<PathBuf> {
        claude::head_of(record).map(|head| head.cwd)
    }

    fn home_of(&self, transcript: &Path) -> Option<PathBuf> {
        above(transcript, &["projects", "", "chats"])
    }

    fn resume(&self, session: &str) -> String {
        format!("qwen --resume {session}")
    }

    fn programs(&self) -> &'static [&'static str] {
        &["qwen", "qwen-code"]
    }

    fn is_chained(&self) -> bool {
        true
    }
}
