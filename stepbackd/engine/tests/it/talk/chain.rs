//! Records that name the one before them: what a rewind, a redo and a fork leave of the chain.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::support::{FORK, append, look, slug, write};
use crate::support::Sandbox;

const ID: &str = "50505050-0000-4000-8000-000000000050";

fn transcript(sandbox: &Sandbox, id: &str) -> PathBuf {
    let slug = slug(&sandbox.root());
    sandbox.home().join(format!(".claude/projects/{slug}/{id}.jsonl"))
}

fn uuid(n: usize) -> String {
    format!("{n:08x}-0000-4000-8000-000000000000")
}

/// Two hundred records as Claude Code writes them: snapshots that have the id of the message after them, a side chain of a
/// sub-agent, compactions whose boundary begins a new chain, two answers that came in the other order.
fn records(root: &Path) -> Vec<String> {
    let mut out = Vec::new();
    let mut parent = Value::Null;
    for n in 0..200 {
        let mut record = match n {
            60 | 150 => json!({"type": "system", "subtype": "compact_boundary", "parentUuid": null,
                "logicalParentUuid": parent, "uuid": uuid(n)}),
            n if n % 20 == 10 => {
                json!({"type": "file-history-snapshot", "messageId": uuid(n + 1), "isSnapshotUpdate": false})
            }
            n if n % 20 == 15 => {
                json!({"type": "user", "isSidechain": true, "parentUuid": null, "uuid": uuid(n)})
            }
            n if n % 20 == 16 => {
                json!({"type": "assistant", "isSidechain": true, "parentUuid": uuid(n - 1), "uuid": uuid(n)})
            }
            _ => json!({"type": "user", "isSidechain": false, "parentUuid": parent, "uuid": uuid(n),
                "message": {"role": "user", "content": format!("message {n}, für {}", uuid(n))}}),
        };
        if record["uuid"].is_string() && record["isSidechain"] != true {
            parent = record["uuid"].clone();
        }
        record["sessionId"] = ID.into();
        record["cwd"] = root.to_str().unwrap().into();
        out.push(record.to_string() + "\n");
    }
    // The record after these names the one that is written first now.
    out.swap(82, 83);
    out
}

/// How many steps it is from the last record to one that names none, and how many of all name one that isn't there.
fn walk(text: &str) -> (usize, usize) {
    let records: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |record: &Value, key: &str| record[key].as_str().map(str::to_owned);
    let parents: HashMap<String, Option<String>> = records
        .iter()
        .filter_map(|record| Some((of(record, "uuid")?, of(record, "parentUuid"))))
        .collect();
    let mut at = records.iter().rev().find_map(|record| of(record, "uuid"));
    let mut steps = 0;
    while let Some(id) = at {
        steps += 1;
        assert!(steps <= records.len(), "a loop");
        at = parents.get(&id).cloned().flatten();
    }
    let missing = parents.values().flatten();
    (
        steps,
        missing.filter(|parent| !parents.contains_key(*parent)).count(),
    )
}

#[test]
fn b50_the_chain_is_whole_after_a_rewind_a_redo_and_a_fork() {
    let mut sandbox = Sandbox::with(|_| {});
    let root = sandbox.root();
    let records = records(&root);
    let (half, all) = (records[..100].concat(), records.concat());
    let file = transcript(&sandbox, ID);
    let n1 = sandbox.turn("one\n", &file, &half);
    // The agent was writing: a half line is on disk.
    let torn = format!("{half}{}", &records[100][..40]);
    let n2 = sandbox.turn("half\n", &file, &torn);
    write(&file, &all);
    sandbox.turn("two\n", &file, &all);
    let before = look(&file);
    let steps = walk(&half);
    assert_eq!((steps.1, walk(&all).1), (0, 0));
    for n in [n1, n2] {
        sandbox.rewind(n);
        let then = look(&file);
        assert!(then.text == half && then.mode == 0o600, "checkpoint {n}");
        assert_eq!(walk(&then.text), steps);
        sandbox.redo();
        assert!(look(&file) == before, "checkpoint {n}");
    }
    let report = sandbox.rewind_as(n1, FORK);
    let new = report.conversation[0].fork.clone().unwrap();
    let fork = look(&transcript(&sandbox, &new));
    assert!(fork.text == half.replace(ID, &new), "more than the id is another");
    assert!(look(&file) == before);
}

#[test]
fn a_line_without_end_is_no_trouble() {
    let mut sandbox = Sandbox::with(|_| {});
    let root = sandbox.root();
    let file = transcript(&sandbox, ID);
    let first = records(&root)[0].clone();
    let n1 = sandbox.turn("one\n", &file, &first);
    append(&file, "{\"type\":\"user\",\"text\":\"");
    append(&file, &"x".repeat(20 << 20));
    sandbox.write("hello.txt", "two\n");
    let n2 = sandbox.capture().id;
    let before = fs::read(&file).unwrap();
    sandbox.rewind(n1);
    assert!(look(&file).text == first);
    sandbox.redo();
    assert!(fs::read(&file).unwrap() == before);
    let report = sandbox.rewind_as(n2, FORK);
    let new = report.conversation[0].fork.clone().unwrap();
    assert!(look(&transcript(&sandbox, &new)).text == first.replace(ID, &new));
}
