//! The rows of one session in a database of many: read in one transaction, written in one.
//!
//! A row is a line of JSON, an array of its values in the order of its columns, and the first line names the columns.
//! Integers, text and null stand for themselves; `{"r":"1.5"}` is a real, `{"b":"00ff"}` a blob (or text that isn't UTF-8).

use std::io;
use std::path::Path;
use std::time::Duration;

use rusqlite::types::{Value as Sqlite, ValueRef};
use rusqlite::{Connection, OpenFlags, ToSql, Transaction, TransactionBehavior, params_from_iter};
use serde_json::{Value, json};

use super::Table;
use super::chunks::{self, Cutter, Lines};
use super::read::ReadError;
use super::record::{Kept, Part};
use crate::oid::{ObjectKind, Oid};
use crate::store::{ObjectWriter, Store};

/// What SQLite answers.
pub(super) type Sql<T> = rusqlite::Result<T>;

/// How long a reader waits for a writer: a capture waits for nobody.
const READ_PATIENCE: Duration = Duration::from_millis(200);
/// How long a rewind does.
const WRITE_PATIENCE: Duration = Duration::from_secs(5);

/// Opens a database to read it.
pub(super) fn open(path: &Path) -> Sql<Connection> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let database = Connection::open_with_flags(path, flags)?;
    database.busy_timeout(READ_PATIENCE)?;
    Ok(database)
}

/// Opens an existing database to change it, and begins.
pub(super) fn change<T>(
    path: &Path,
    work: impl FnOnce(&Transaction<'_>) -> Result<T, Trouble>,
) -> Result<T, Trouble> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let mut database = Connection::open_with_flags(path, flags)?;
    database.busy_timeout(WRITE_PATIENCE)?;
    // Rows that others refer to are put back in the same transaction.
    database.pragma_update(None, "foreign_keys", false)?;
    let transaction = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let done = work(&transaction)?;
    transaction.commit()?;
    Ok(done)
}

/// What can go wrong while rows are changed.
pub(super) enum Trouble {
    Database(rusqlite::Error),
    Other(String),
    Store(crate::Error),
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error)
    }
}

impl From<crate::Error> for Trouble {
    fn from(error: crate::Error) -> Self {
        Self::Store(error)
    }
}

/// Names of the tables that have a column.
pub(super) fn tables_with(database: &Connection, column: &str) -> Sql<Vec<String>> {
    let mut query = database.prepare(
        "SELECT m.name FROM sqlite_schema m, pragma_table_info(m.name) c
         WHERE m.type = 'table' AND c.name = ?1 ORDER BY m.name",
    )?;
    query.query_map([column], |row| row.get(0))?.collect()
}

/// The columns of a table; none when there is no such table.
fn columns(database: &Connection, table: &str) -> Sql<Vec<String>> {
    let mut query = database.prepare("SELECT name FROM pragma_table_info(?1) ORDER BY cid")?;
    query.query_map([table], |row| row.get(0))?.collect()
}

fn key(database: &Connection, table: &str) -> Sql<Vec<String>> {
    let mut query = database.prepare("SELECT name FROM pragma_table_info(?1) WHERE pk > 0 ORDER BY pk")?;
    query.query_map([table], |row| row.get(0))?.collect()
}

/// A name as it stands in a statement.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn placeholders(count: usize) -> String {
    vec!["?"; count].join(",")
}

/// The rows of a session, each table a part.
pub(super) fn read(
    dir: &Path,
    tables: &[Table],
    stamp: &str,
    known: Option<&Kept>,
    writer: &ObjectWriter<'_>,
) -> Result<Vec<Part>, ReadError> {
    let Some(first) = tables.first() else {
        return Ok(Vec::new());
    };
    let failed = |e: rusqlite::Error| ReadError::Transcript(io::Error::other(format!("{}: {e}", first.db)));
    let mut database = open(&dir.join(first.db.as_path())).map_err(failed)?;
    // One transaction: what one table has, the others have.
    let transaction = database.transaction().map_err(failed)?;
    let mut parts = Vec::new();
    for table in tables {
        let mut part = Part::rows(table.clone(), stamp.to_owned());
        let earlier = known.and_then(|kept| kept.parts.iter().find(|known| known.is_at(&part)));
        let mut cutter = Cutter::new(writer, earlier.map_or(&[], |part| &part.chunks));
        let mut store_error = None;
        lines(&transaction, table, &mut |line| match cutter.push(line) {
            Ok(_) => true,
            Err(e) => {
                store_error = Some(e);
                false
            }
        })
        .map_err(failed)?;
        if let Some(e) = store_error {
            return Err(e.into());
        }
        part.chunks = cutter.finish()?;
        parts.push(part);
    }
    Ok(parts)
}

/// The rows of a table as lines, in the order of its key, until `each` says that it is enough.
fn lines(database: &Connection, table: &Table, each: &mut dyn FnMut(&[u8]) -> bool) -> Sql<()> {
    let columns = columns(database, &table.name)?;
    if columns.is_empty() {
        return Ok(());
    }
    let order = key(database, &table.name)?;
    let order = if order.is_empty() {
        "rowid".to_owned()
    } else {
        order
            .iter()
            .map(|name| quoted(name))
            .collect::<Vec<_>>()
            .join(",")
    };
    let names: Vec<_> = columns.iter().map(|name| quoted(name)).collect();
    let mut query = database.prepare(&format!(
        "SELECT {} FROM {} WHERE {} IN ({}) ORDER BY {order}",
        names.join(","),
        quoted(&table.name),
        quoted(&table.column),
        placeholders(table.ids.len()),
    ))?;
    let mut line = json!(columns).to_string().into_bytes();
    line.push(b'\n');
    if !each(&line) {
        return Ok(());
    }
    let mut rows = query.query(params_from_iter(&table.ids))?;
    while let Some(row) = rows.next()? {
        let values: Result<Vec<Value>, _> =
            (0..columns.len()).map(|at| row.get_ref(at).map(encode)).collect();
        let mut line = Value::Array(values?).to_string().into_bytes();
        line.push(b'\n');
        if !each(&line) {
            break;
        }
    }
    Ok(())
}

fn encode(value: ValueRef<'_>) -> Value {
    let blob = |bytes: &[u8]| json!({ "b": bytes.iter().map(|b| format!("{b:02x}")).collect::<String>() });
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(n) => json!(n),
        ValueRef::Real(x) => json!({ "r": format!("{x:?}") }),
        ValueRef::Text(text) => match std::str::from_utf8(text) {
            Ok(text) => json!(text),
            Err(_) => blob(text),
        },
        ValueRef::Blob(bytes) => blob(bytes),
    }
}

fn decode(value: &Value) -> Option<Sqlite> {
    Some(match value {
        Value::Null => Sqlite::Null,
        Value::Number(n) => Sqlite::Integer(n.as_i64()?),
        Value::String(text) => Sqlite::Text(text.clone()),
        Value::Object(fields) => match (fields.get("r"), fields.get("b")) {
            (Some(real), _) => Sqlite::Real(real.as_str()?.parse().ok()?),
            (_, Some(hex)) => {
                let hex = hex.as_str()?.as_bytes();
                let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
                Sqlite::Blob(hex.chunks(2).map(byte).collect::<Option<_>>()?)
            }
            _ => return None,
        },
        _ => return None,
    })
}

/// Makes the rows of a session those of `part`, or takes them all away. `also`: further values of the column whose rows
/// are the session's now; `None`: what is there isn't saved, so nothing may be there.
pub(super) fn equalize(
    transaction: &Transaction<'_>,
    store: &Store,
    part: &Part,
    also: Option<&[String]>,
    empty: bool,
) -> Result<(), Trouble> {
    let Some(table) = &part.table else { return Ok(()) };
    let columns = columns(transaction, &table.name)?;
    if columns.is_empty() {
        return if empty || part.chunks.is_empty() {
            Ok(())
        } else {
            Err(Trouble::Other(format!(
                "there is no table {} any more",
                table.name
            )))
        };
    }
    let mut ids = table.ids.clone();
    ids.extend(also.into_iter().flatten().cloned());
    ids.sort_unstable();
    ids.dedup();
    if also.is_none() {
        let rows: i64 = transaction.query_row(
            &format!(
                "SELECT count(*) FROM {} WHERE {} IN ({})",
                quoted(&table.name),
                quoted(&table.column),
                placeholders(ids.len())
            ),
            params_from_iter(&ids),
            |row| row.get(0),
        )?;
        if rows > 0 {
            return Err(Trouble::Other("its rows couldn't be saved before".into()));
        }
    }
    transaction.execute(
        &format!(
            "DELETE FROM {} WHERE {} IN ({})",
            quoted(&table.name),
            quoted(&table.column),
            placeholders(ids.len())
        ),
        params_from_iter(&ids),
    )?;
    if empty {
        return Ok(());
    }
    each_row(store, part, &mut |names, values| {
        insert(transaction, &table.name, &columns, names, values)
    })
}

fn insert(
    transaction: &Transaction<'_>,
    table: &str,
    columns: &[String],
    names: &[String],
    values: &[Sqlite],
) -> Result<(), Trouble> {
    if let Some(missing) = names.iter().find(|name| !columns.contains(name)) {
        return Err(Trouble::Other(format!(
            "{table} has no column {missing} any more"
        )));
    }
    let into: Vec<_> = names.iter().map(|name| quoted(name)).collect();
    let mut statement = transaction.prepare_cached(&format!(
        "INSERT INTO {} ({}) VALUES ({})",
        quoted(table),
        into.join(","),
        placeholders(names.len())
    ))?;
    statement.execute(params_from_iter(values.iter().map(|value| value as &dyn ToSql)))?;
    Ok(())
}

/// Takes names of columns and values of a row.
type EachRow<'a> = dyn FnMut(&[String], &[Sqlite]) -> Result<(), Trouble> + 'a;

/// Hands out the recorded rows with the names of their columns.
fn each_row(store: &Store, part: &Part, each: &mut EachRow<'_>) -> Result<(), Trouble> {
    let mut names: Option<Vec<String>> = None;
    let mut trouble = None;
    let bad = || io::Error::other("a recorded row can't be read");
    let mut reader = Lines::new(|line: &[u8]| {
        let Some(names) = &names else {
            names = Some(serde_json::from_slice(line)?);
            return Ok(());
        };
        let values: Vec<Value> = serde_json::from_slice(line)?;
        let values: Vec<Sqlite> = values.iter().map(decode).collect::<Option<_>>().ok_or_else(bad)?;
        if values.len() != names.len() {
            return Err(bad());
        }
        each(names, &values).map_err(|e| {
            trouble = Some(e);
            bad()
        })
    });
    let read = chunks::read(store, &part.chunks, u64::MAX, &mut |bytes| {
        io::Write::write_all(&mut reader, bytes)
    })?;
    let read = read.and_then(|()| reader.finish());
    match (trouble, read) {
        (Some(trouble), _) => Err(trouble),
        (None, Err(e)) => Err(Trouble::Other(e.to_string())),
        (None, Ok(())) => Ok(()),
    }
}

/// Writes recorded rows as those of another session. `pairs`: old and new ids, wherever they stand.
pub(super) fn copy(
    transaction: &Transaction<'_>,
    store: &Store,
    part: &Part,
    pairs: &[(String, String)],
) -> Result<(), Trouble> {
    let Some(table) = &part.table else { return Ok(()) };
    let columns = columns(transaction, &table.name)?;
    let keys = key(transaction, &table.name)?;
    each_row(store, part, &mut |names, values| {
        let mut values = values.to_vec();
        for (name, value) in names.iter().zip(&mut values) {
            if let Sqlite::Text(text) = value {
                for (old, new) in pairs {
                    if text.contains(old.as_str()) {
                        *text = text.replace(old.as_str(), new);
                    }
                }
            }
            // A number that the database gives out itself.
            let counts = keys.len() == 1 && keys[0] == *name && matches!(value, Sqlite::Integer(_));
            if counts {
                *value = Sqlite::Null;
            }
        }
        insert(transaction, &table.name, &columns, names, &values)
    })
}

/// Whole words in the recorded rows that begin with one of `prefixes`: ids that a copy needs new ones for.
pub(super) fn ids(store: &Store, part: &Part, prefixes: &[&str]) -> Result<Vec<String>, Trouble> {
    let mut found = Vec::new();
    each_row(store, part, &mut |_, values| {
        for value in values {
            if let Sqlite::Text(text) = value
                && text.len() <= 128
                && prefixes.iter().any(|prefix| text.starts_with(prefix))
            {
                found.push(text.clone());
            }
        }
        Ok(())
    })?;
    Ok(found)
}

/// A number that follows from `seed`.
pub(super) fn number(seed: &str) -> u64 {
    let oid = Oid::of(ObjectKind::Blob, seed.as_bytes());
    oid.0.iter().take(7).fold(0, |n, b| n << 8 | u64::from(*b))
}

/// Another id that sorts as `old` does: its first half, and then what follows from `seed`.
pub(super) fn same_length(old: &str, seed: &str) -> String {
    let keep = old.len() / 2;
    let new = Oid::of(ObjectKind::Blob, format!("{seed} {old}").as_bytes()).to_string();
    let tail: String = new.chars().cycle().take(old.len() - keep).collect();
    format!("{}{tail}", old.chars().take(keep).collect::<String>())
}
