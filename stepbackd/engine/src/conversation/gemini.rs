//! Gemini CLI. `~/.gemini/projects.json` names a directory for each project; its sessions are
//! `tmp/<name>/chats/session-<time>-<first 8 of the id>.jsonl`. The first line has the id. The agent itself deletes old
//! chats, and some that aren't old.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::homes::above;
use super::look::{Head, Look};
use super::{Adapter, Found};
use crate::path::TreePath;

pub(super) struct Gemini;

impl Adapter for Gemini {
    fn find(&self, look: &mut Look<'_>) -> io::Result<Vec<Found>> {
        let Some(text) = look.read_small("projects.json")? else {
            return Ok(Vec::new());
        };
        let projects: Value = serde_json::from_slice(&text)?;
        let mut found: BTreeMap<String, Found> = BTreeMap::new();
        for (cwd, name) in projects
            .get("projects")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            let (Some(name), true) = (name.as_str(), look.is_ours(Path::new(cwd))) else {
                continue;
            };
            let Some(chats) = Look::path(&format!("tmp/{name}/chats")) else {
                continue;
            };
            for file in look.list(&chats)? {
                if !file.ends_with(".jsonl") {
                    continue;
                }
                let path = chats.join(file.as_bytes());
                let head = look.head(&path, None, |record| {
                    Some(Head {
                        session: record.get("sessionId")?.as_str()?.to_owned(),
                        cwd: cwd.into(),
                    })
                });
                let Some(head) = head else { continue };
                let session = found.entry(head.session.clone()).or_insert_with(|| Found {
                    session: head.session,
                    cwd: cwd.into(),
                    ..Found::default()
                });
                session.files.push(path);
                look.walk(chats.join(session.session.as_bytes()), &mut session.files)?;
            }
        }
        Ok(found.into_values().collect())
    }

    /// Its records don't say where it runs, the list of projects does.
    fn told(&self, look: &mut Look<'_>, session: &str, transcript: TreePath) -> io::Result<Found> {
        let text = look.read_small("projects.json")?.unwrap_or_default();
        let projects: Value = serde_json::from_slice(&text).unwrap_or_default();
        let name = transcript.parts().nth(1).unwrap_or_default().to_vec();
        let projects = projects.get("projects").and_then(Value::as_object);
        let cwd = projects
            .into_iter()
            .flatten()
            .find(|(_, known)| known.as_str().is_some_and(|known| known.as_bytes() == name))
            .map(|(cwd, _)| PathBuf::from(cwd));
        Ok(Found {
            session: session.to_owned(),
            cwd: cwd.unwrap_or_default(),
            files: vec![transcript],
            ..Found::default()
        })
    }

    fn began(&self, _: &Value) -> Option<PathBuf> {
        None
    }

    fn home_of(&self, transcript: &Path) -> Option<PathBuf> {
        above(transcript, &["tmp", "", "chats"])
    }

    fn resume(&self, session: &str) -> String {
        format!("gemini --resume {session}")
    }

    fn programs(&self) -> &'static [&'static str] {
        &["gemini", "gemini-cli"]
    }
}
