//! `stepback roots`

use jiff::Timestamp;
use stepback_proto::{Item, Verb};

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
    let (now, zone) = (Timestamp::now(), local_zone());
    let width = roots
        .iter()
        .map(|r| json::state(r.state).len())
        .max()
        .unwrap_or(0);
    let mut out = String::new();
    for root in &roots {
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
    app.printer.text(&out)?;
    if roots.is_empty() {
        app.printer.note("no directory is attached");
        app.printer
            .hint("`stepback attach` starts to watch the current one");
    }
    Ok(0)
}
