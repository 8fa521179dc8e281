//! `stepback watch`, also `stepback log -f`

use std::collections::HashMap;

use jiff::Timestamp;
use stepback_proto::{Event, Item, RootState, Verb};

use crate::app::App;
use crate::environment::local_zone;
use crate::error::Result;
use crate::reader;
use crate::render::path::shown;
use crate::render::time::clock;
use crate::render::{json, list};

pub fn run(app: &App) -> Result<u8> {
    reader::end_when_gone();
    let mut last: HashMap<Vec<u8>, RootState> = HashMap::new();
    app.ask(Verb::Watch, &mut |item| {
        let Item::Event(event) = item else { return Ok(()) };
        if app.printer.json {
            return app.printer.json(&json::event(&event));
        }
        let now = Timestamp::now();
        app.printer.text(&match *event {
            Event::Checkpoint { checkpoint, .. } => list::event_line(&checkpoint, now, app.printer.color()),
            Event::State { root, state } => {
                let at = clock(now.as_millisecond(), now, &local_zone());
                let again = last.insert(root.0.clone(), state).is_some();
                format!("{at}  {} {}\n", shown(&root), sentence(state, again))
            }
        })
    })?;
    Ok(0)
}

/// What is so now about a root; `again` if another state was told before.
fn sentence(state: RootState, again: bool) -> &'static str {
    match state {
        RootState::Indexing => "is scanned",
        RootState::Watching if again => "is watched again",
        RootState::Watching => "is watched",
        RootState::Polling => "is watched by looking at it from time to time",
        RootState::Degraded => "is watched in part; `stepback status` says why",
        RootState::Missing => "is missing; `stepback rewind` puts it back",
        RootState::Replaced => "has another directory in its place; `stepback attach` settles what it is",
        RootState::Failed => "can't be captured; `stepback status` says why",
    }
}
