//! opencode. One SQLite database for all projects, `opencode.db`: a row of `session`, those of its children (sub-agents),
//! and in other tables whatever has their `session_id`.

use std::io;
use std::path::PathBuf;

use rusqlite::Connection;

use super::fork::Way;
use super::look::Look;
use super::sqlite::{self, Sql};
use super::{Adapter, Found, Table};
use crate::path::TreePath;

const DATABASE: &str = "opencode.db";
/// Publishes a session: not part of what was said.
const NOT_OURS: &str = "session_share";

pub(super) struct Opencode;

impl Adapter for Opencode {
    fn find(&self, look: &mut Look<'_>) -> io::Result<Vec<Found>> {
        look.rows(DATABASE, sessions)
    }

    fn began(&self, _: &serde_json::Value) -> Option<PathBuf> {
        None
    }

    fn resume(&self, session: &str) -> String {
        format!("opencode --session {session}")
    }

    fn programs(&self) -> &'static [&'static str] {
        &["opencode", "opencode-ai"]
    }

    fn fork_of(&self) -> Way {
        Way::Rows {
            new_id: |old, seed| {
                format!(
                    "ses_{}",
                    sqlite::same_length(old.trim_start_matches("ses_"), seed)
                )
            },
            prefixes: &["msg_", "prt_", "evt_"],
        }
    }
}

/// The sessions of `database` that aren't another's child.
fn sessions(database: &Connection, db: &TreePath) -> rusqlite::Result<Vec<Found>> {
    let tables = sqlite::tables_with(database, "session_id")?;
    let mut query = database.prepare(
        "SELECT s.id, s.directory, s.time_updated,
           (SELECT count(*) || '.' || ifnull(max(time_updated), 0) FROM message WHERE session_id = s.id),
           (SELECT count(*) || '.' || ifnull(max(time_updated), 0) FROM part WHERE session_id = s.id)
         FROM session s WHERE s.parent_id IS NULL OR s.parent_id = '' ORDER BY s.time_updated DESC LIMIT 200",
    )?;
    let rows = query.query_map([], |row| {
        Ok((
            row.get::<_, String>(0)?,
            row.get::<_, String>(1)?,
            row.get::<_, i64>(2)?,
            row.get::<_, String>(3)?,
            row.get::<_, String>(4)?,
        ))
    })?;
    let mut found = Vec::new();
    for row in rows {
        let (id, directory, updated, messages, parts) = row?;
        let ids = family(database, &id)?;
        let of = |name: &str, column: &str| Table {
            db: db.clone(),
            name: name.into(),
            column: column.into(),
            ids: ids.clone(),
            derived: false,
        };
        let mut all = vec![of("session", "id")];
        let others = tables.iter().filter(|name| *name != NOT_OURS);
        all.extend(others.map(|name| of(name, "session_id")));
        found.push(Found {
            session: id,
            cwd: directory.into(),
            tables: all,
            rows_stamp: Some((
                format!("{updated} {messages} {parts} {}", ids.len()),
                updated.saturating_mul(1_000_000),
            )),
            ..Found::default()
        });
    }
    Ok(found)
}

/// A session and all below it.
fn family(database: &Connection, id: &str) -> Sql<Vec<String>> {
    let mut query = database.prepare_cached(
        "WITH RECURSIVE f(id) AS (SELECT ?1 UNION SELECT s.id FROM session s JOIN f ON s.parent_id = f.id)
         SELECT id FROM f ORDER BY id",
    )?;
    query.query_map([id], |row| row.get(0))?.collect()
}
