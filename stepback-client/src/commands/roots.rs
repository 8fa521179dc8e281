//! `stepback roots`

use std::collections::BTreeMap;

use jiff::Timestamp;
use stepback_proto::{Item, RootLine, RootState, Verb};

use crate::app::App;
use crate::environment::local_zone;
use crate::error::Result;
use crate::render::path::shown;
use crate::render::time::both;
use crate::render::{count, json};
use crate::size;

pub fn run(app: &App) -> Result<u8> {
    let (items, _) = app.collect(Verb::Roots)?;
    let (mut roots, mut shared) = (Vec::new(), BTreeMap::new());
    for item in items {
        match item {
            Item::Root(root) => roots.push(root),
            Item::SharedStore { id, others } => {
                shared.insert(id, others);
            }
            _ => {}
        }
    }
    if app.printer.json {
        let told = roots.iter().map(|root| {
            let mut told = json::root(root);
            if let Some(others) = shared.get(&root.id) {
                told["store_shared_with"] = (*others).into();
            }
            told
        });
        app.printer.json(&told.collect())?;
        return Ok(0);
    }
    app.printer.text(&text(&roots, &shared, Timestamp::now()))?;
    if roots.is_empty() {
        app.printer.note("no directory is attached");
        app.printer
            .hint("`stepback attach` starts to watch the current one");
    }
    Ok(0)
}

/// `shared`: with how many others a root has its store.
fn text(roots: &[RootLine], shared: &BTreeMap<String, u64>, now: Timestamp) -> String {
    let zone = local_zone();
    let width = roots
        .iter()
        .map(|r| json::state(r.state).len())
        .max()
        .unwrap_or(0);
    let mut out = String::new();
    for root in roots {
        // Before the store is read nothing is known of it, and 0 would be a lie.
        if root.state == RootState::Indexing && root.last.is_none() {
            out += &format!("{:width$}  {}\n", json::state(root.state), shown(&root.path));
            continue;
        }
        let last = root.last.map_or_else(String::new, |l| {
            format!(", latest {} {}", l.id, both(l.time_ms, now, &zone))
        });
        let with = shared.get(&root.id).map_or_else(String::new, |others| {
            format!(" (shared with {})", count(*others, "other", "others"))
        });
        out += &format!(
            "{:width$}  {}  {}{last}, {}{with}\n",
            json::state(root.state),
            shown(&root.path),
            count(root.checkpoints, "checkpoint", "checkpoints"),
            size::human(root.store_bytes)
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use stepback_proto::WirePath;

    use super::*;

    #[test]
    fn a_root_whose_store_is_not_read_yet_has_no_numbers() {
        let mut root = RootLine {
            path: WirePath(b"/p".to_vec()),
            id: "p-1".into(),
            state: RootState::Indexing,
            checkpoints: 0,
            last: None,
            store_bytes: 0,
        };
        let now = Timestamp::UNIX_EPOCH;
        let mut shared = BTreeMap::new();
        assert_eq!(text(&[root.clone()], &shared, now), "indexing  /p\n");
        root.state = RootState::Watching;
        assert_eq!(
            text(&[root.clone()], &shared, now),
            "watching  /p  0 checkpoints, 0 B\n"
        );
        shared.insert("p-1".into(), 4);
        assert_eq!(
            text(&[root], &shared, now),
            "watching  /p  0 checkpoints, 0 B (shared with 4 others)\n"
        );
    }
}
