//! `stepback watch`, also `stepback log -f`

use jiff::Timestamp;
use jiff::tz::TimeZone;
use stepback_proto::{Event, Item, Verb};

use crate::app::App;
use crate::error::Result;
use crate::render::path::shown;
use crate::render::time::clock;
use crate::render::{json, list};

pub fn run(app: &App) -> Result<u8> {
    app.ask(Verb::Watch, &mut |item| {
        let Item::Event(event) = item else { return Ok(()) };
        if app.printer.json {
            return app.printer.json(&json::event(&event));
        }
        let now = Timestamp::now();
        app.printer.text(&match *event {
            Event::Checkpoint { checkpoint, .. } => list::event_line(&checkpoint, now, app.printer.color()),
            Event::State { root, state } => {
                let at = clock(now.as_millisecond(), now, &TimeZone::system());
                format!("{at}  {} is {}\n", shown(&root), json::state(state))
            }
        })
    })?;
    Ok(0)
}
