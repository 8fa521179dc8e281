//! `stepback roots`

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
    let roots: Vec<_> = items
        .into_iter()
        .filter_map(|item| match item {
            Item::Root(root) => Some(root),
            _ => None,
        })
        .collect();
    if app.printer.json {
        app.printer.json(&roots.iter().map(json::root).collect())?;
        return Ok(0);
    }
    app.printer.text(&text(&roots, Timestamp::now()))?;
    if roots.is_empty() {
        app.printer.note("no directory is attached");
        app.printer
            .hint("`stepback attach` starts to watch the current one");
    }
    Ok(0)
}

fn text(roots: &[RootLine], now: Timestamp) -> String {
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
        out += &format!(
            "{:width$}  {}  {}{last}, {}\n",
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
        assert_eq!(text(&[root.clone()], now), "indexing  /p\n");
        root.state = RootState::Watching;
        assert_eq!(text(&[root], now), "watching  /p  0 checkpoints, 0 B\n");
    }
}
