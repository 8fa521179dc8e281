//! Codex CLI. `~/.codex/sessions/YYYY/MM/DD/rollout-<time>-<id>.jsonl`, its first record says id and directory. A fork, and
//! a thread that was reverted by the agent itself, begin in another rollout, at an offset that their first record names:
//! what it needs must stay. `thread_history_1.sqlite` has what the agent made of a rollout; it is dropped when a rollout
//! is cut, and the agent makes it anew.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::book::below;
use super::homes::above;
use super::look::{HEADS_BYTES_MAX, Head, Look};
use super::{Adapter, Found, Table, jsonl};
use crate::path::TreePath;
use crate::time::Time;

/// Rollouts of so many days are looked at after every burst. Older ones, which a resume goes on in, when the agent's own
/// list of threads has them as changed since, and on request.
const RECENT_DAYS: i64 = 2;
const DAY_NS: i64 = 86_400_000_000_000;
const PROJECTION: &str = "thread_history_1.sqlite";
const PROJECTION_TABLES: [&str; 4] = [
    "thread_items",
    "thread_turns",
    "thread_realtime_items",
    "thread_history_projection_state",
];

pub(super) struct Codex;

impl Adapter for Codex {
    fn find(&self, look: &mut Look<'_>) -> io::Result<Vec<Found>> {
        let mut found: BTreeMap<String, Found> = BTreeMap::new();
        for path in rollouts(look)? {
            let Some(head) = look.head(&path, None, head_of) else {
                continue;
            };
            let session = found.entry(head.session.clone()).or_insert_with(|| Found {
                session: head.session,
                cwd: head.cwd,
                ..Found::default()
            });
            session.files.push(path);
        }
        let mut found: Vec<Found> = found.into_values().collect();
        for found in &mut found {
            found.tables = projection(look, &found.session);
        }
        Ok(found)
    }

    fn told(&self, look: &mut Look<'_>, session: &str, transcript: TreePath) -> io::Result<Found> {
        Ok(Found {
            tables: projection(look, session),
            session: session.to_owned(),
            files: vec![transcript],
            ..Found::default()
        })
    }

    fn began(&self, record: &Value) -> Option<PathBuf> {
        head_of(record).map(|head| head.cwd)
    }

    fn home_of(&self, transcript: &Path) -> Option<PathBuf> {
        above(transcript, &["sessions", "", "", ""])
    }

    fn home_variable(&self) -> Option<&'static str> {
        Some("CODEX_HOME")
    }

    fn resume(&self, session: &str) -> String {
        format!("codex resume {session}")
    }

    fn programs(&self) -> &'static [&'static str] {
        &["codex", "codex-cli"]
    }

    fn hindrance(&self, dir: &Path, session: &str, lengths: &BTreeMap<TreePath, u64>) -> Option<String> {
        let own = |path: &TreePath| dir.join(path.as_path());
        let based = all_rollouts(&dir.join("sessions"))
            .into_iter()
            .filter_map(|path| {
                let (file, _) = crate::user_file::open(&path).ok()?;
                // The first record says all: those after it aren't read.
                let base = jsonl::first(file, HEADS_BYTES_MAX, |record| Some(base_of(record))).ok()???;
                Some((path, base))
            });
        for (path, head) in based {
            // A later part of the same session goes, or stays, with it.
            if head.of_session == session && !lengths.keys().any(|kept| own(kept) == path) {
                continue;
            }
            let needed = lengths.iter().find(|(kept, _)| is_named(kept, &head.base));
            if let Some((_, length)) = needed
                && head.offset > *length
            {
                return Some(format!(
                    "session {} was forked from a later point of it",
                    head.of_session
                ));
            }
        }
        None
    }
}

/// What the agent has made of a session's rollouts.
fn projection(look: &Look<'_>, session: &str) -> Vec<Table> {
    let db = Look::path(PROJECTION).filter(|path| look.stat(path).is_some());
    let tables = db.iter().flat_map(|db| {
        PROJECTION_TABLES.map(|name| Table {
            db: db.clone(),
            name: name.into(),
            column: "thread_id".into(),
            ids: vec![session.to_owned()],
            derived: true,
        })
    });
    tables.collect()
}

/// Whether this is the rollout that others name by `id`: its file ends in it.
fn is_named(path: &TreePath, id: &str) -> bool {
    path.as_bytes()
        .strip_suffix(b".jsonl")
        .is_some_and(|stem| stem.ends_with(id.as_bytes()))
}

fn head_of(record: &Value) -> Option<Head> {
    let meta = record.get("payload")?;
    Some(Head {
        session: meta.get("id")?.as_str()?.to_owned(),
        cwd: meta.get("cwd")?.as_str()?.into(),
    })
}

struct Base {
    of_session: String,
    base: String,
    offset: u64,
}

/// Where a rollout begins in another one.
fn base_of(record: &Value) -> Option<Base> {
    let meta = record.get("payload")?;
    let base = meta.get("history_base")?;
    Some(Base {
        of_session: meta.get("id")?.as_str()?.to_owned(),
        base: base.get("thread_id")?.as_str()?.to_owned(),
        offset: base.get("end_byte_offset")?.as_u64()?,
    })
}

/// The rollouts to look at.
fn rollouts(look: &mut Look<'_>) -> io::Result<Vec<TreePath>> {
    let Some(sessions) = Look::path("sessions") else {
        return Ok(Vec::new());
    };
    let oldest = day_of(Time(look.now.0 - RECENT_DAYS * DAY_NS));
    let mut found = Vec::new();
    let going_on = going_on(look);
    for year in look.list(&sessions)? {
        let year_dir = sessions.join(year.as_bytes());
        for month in look.list(&year_dir)? {
            let month_dir = year_dir.join(month.as_bytes());
            for day in look.list(&month_dir)? {
                let dir = month_dir.join(day.as_bytes());
                let recent = format!("{year}-{month}-{day}") >= oldest;
                for file in look.list(&dir)? {
                    let path = dir.join(file.as_bytes());
                    if is_rollout(&file)
                        && (recent || look.thorough || look.knows(&path) || going_on.contains(&path))
                    {
                        found.push(path);
                    }
                }
            }
        }
    }
    Ok(found)
}

/// Rollouts that changed of late by the agent's own list of threads; none when that can't be read.
fn going_on(look: &mut Look<'_>) -> Vec<TreePath> {
    // Its number goes up when its tables change.
    let is_list = |name: &String| name.starts_with("state_") && name.ends_with(".sqlite");
    let lists = look
        .list(&TreePath::root())
        .unwrap_or_default()
        .into_iter()
        .filter(is_list);
    let Some(newest) = lists.max_by_key(|name| (name.len(), name.clone())) else {
        return Vec::new();
    };
    let dir = look.dir;
    let since = (look.now.0 - RECENT_DAYS * DAY_NS) / 1_000_000;
    let found = look.rows(&newest, |database, _| {
        let mut query = database.prepare(
            "SELECT id, rollout_path, cwd FROM threads WHERE updated_at_ms > ?1 ORDER BY id LIMIT 1000",
        )?;
        let threads = query.query_map([since], |row| {
            let (path, cwd): (String, String) = (row.get(1)?, row.get(2)?);
            Ok(Found {
                session: row.get(0)?,
                files: below(dir, Path::new(&path)).into_iter().collect(),
                cwd: cwd.into(),
                ..Found::default()
            })
        })?;
        threads.collect()
    });
    let found = found.unwrap_or_default();
    found.into_iter().flat_map(|found| found.files).collect()
}

fn is_rollout(name: &str) -> bool {
    name.starts_with("rollout-") && name.ends_with(".jsonl")
}

fn day_of(time: Time) -> String {
    jiff::Timestamp::from_second(time.seconds())
        .map(|at| at.strftime("%Y-%m-%d").to_string())
        .unwrap_or_default()
}

/// All rollouts there are.
fn all_rollouts(sessions: &Path) -> Vec<PathBuf> {
    let mut todo = vec![(sessions.to_owned(), 0)];
    let mut found = Vec::new();
    while let Some((dir, depth)) = todo.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let kind = entry.file_type();
            match kind {
                Ok(kind) if kind.is_dir() && depth < 3 => todo.push((entry.path(), depth + 1)),
                Ok(kind) if kind.is_file() && name.to_str().is_some_and(is_rollout) => {
                    found.push(entry.path());
                }
                _ => {}
            }
        }
    }
    found
}
