//! goose. One SQLite database for all projects, `sessions/sessions.db`: a row of `sessions`, and its rows of `messages`.

use std::io;
use std::path::PathBuf;

use rusqlite::Connection;

use super::fork::Way;
use super::look::Look;
use super::sqlite;
use super::{Adapter, Found, Table};
use crate::path::TreePath;

const DATABASE: &str = "sessions/sessions.db";

pub(super) struct Goose;

impl Adapter for Goose {
    fn find(&self, look: &mut Look<'_>) -> io::Result<Vec<Found>> {
        look.rows(DATABASE, sessions)
    }

    fn began(&self, _: &serde_json::Value) -> Option<PathBuf> {
        None
    }

    fn resume(&self, session: &str) -> String {
        format!("goose session --resume --session-id {session}")
    }

    fn programs(&self) -> &'static [&'static str] {
        &["goose", "goosed"]
    }

    fn fork_of(&self) -> Way {
        Way::Rows {
            // Sessions of a day are counted; a number that no day reaches.
            new_id: |old, seed| {
                let day = old.split('_').next().unwrap_or(old);
                // Several of a day may be forked at once.
                format!(
                    "{day}_{}",
                    100_000 + sqlite::number(&format!("{seed} {old}")) % 900_000
                )
            },
            prefixes: &["msg_", "chatcmpl-"],
        }
    }
}

fn sessions(database: &Connection, db: &TreePath) -> rusqlite::Result<Vec<Found>> {
    let tables = sqlite::tables_with(database, "session_id")?;
    let mut query = database.prepare(
        "SELECT s.id, s.working_dir, s.updated_at, ifnull(CAST(strftime('%s', s.updated_at) AS INTEGER), 0),
           (SELECT count(*) || '.' || ifnull(max(id), 0) FROM messages WHERE session_id = s.id),
           (SELECT ifnull(max(created_timestamp), 0) FROM messages WHERE session_id = s.id)
         FROM sessions s ORDER BY s.updated_at DESC LIMIT 200",
    )?;
    let rows = query.query_map([], |row| {
        Ok((
            row.get::<_, String>(0)?,
            row.get::<_, String>(1)?,
            row.get::<_, String>(2)?,
            row.get::<_, i64>(3)?,
            row.get::<_, String>(4)?,
            row.get::<_, i64>(5)?,
        ))
    })?;
    let mut found = Vec::new();
    for row in rows {
        let (id, directory, updated, updated_s, messages, newest_s) = row?;
        let of = |name: &str, column: &str| Table {
            db: db.clone(),
            name: name.into(),
            column: column.into(),
            ids: vec![id.clone()],
            derived: false,
        };
        let mut all = vec![of("sessions", "id")];
        all.extend(tables.iter().map(|name| of(name, "session_id")));
        // A whole second is meant: what was written within it counts as later.
        let seconds = updated_s.max(newest_s) + 1;
        found.push(Found {
            cwd: directory.into(),
            tables: all,
            rows_stamp: Some((
                format!("{updated} {messages}"),
                seconds.saturating_mul(1_000_000_000),
            )),
            session: id,
            ..Found::default()
        });
    }
    Ok(found)
}
