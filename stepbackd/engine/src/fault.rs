//! Named points at which tests make the engine fail or die. Without the feature `fault-points` a point is nothing.
//!
//! With it, `STEPBACK_FAULT=name:count:action` picks one: at the `count`-th passing of the point `name` (or of any point
//! when `name` is `*`), `action` happens: `kill` (abort without cleaning up), `panic`, or `eio`, `enospc`, `eacces` (the
//! point fails with that error). `STEPBACK_FAULT_LOG=FILE` appends the name of each point that is passed.

#[cfg(not(feature = "fault-points"))]
use std::io;

/// A point that can fail. `name` says which step of which operation comes next: `stage.write`, `apply.exchange`.
///
/// # Errors
/// Only in tests: the error that was asked for.
#[cfg(not(feature = "fault-points"))]
#[inline]
pub fn point(_name: &'static str) -> io::Result<()> {
    Ok(())
}

#[cfg(feature = "fault-points")]
pub use active::point;

#[cfg(feature = "fault-points")]
#[allow(
    clippy::disallowed_methods,
    reason = "tests choose a point by the environment of a process"
)]
mod active {
    use std::io::{self, Write};
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    struct Plan {
        name: String,
        at: u64,
        action: String,
        passed: AtomicU64,
    }

    static PLAN: OnceLock<Option<Plan>> = OnceLock::new();

    fn plan() -> Option<&'static Plan> {
        PLAN.get_or_init(|| {
            let text = std::env::var("STEPBACK_FAULT").ok()?;
            let mut parts = text.splitn(3, ':');
            let name = parts.next()?.to_owned();
            let at = parts.next()?.parse().ok()?;
            let action = parts.next()?.to_owned();
            Some(Plan {
                name,
                at,
                action,
                passed: AtomicU64::new(0),
            })
        })
        .as_ref()
    }

    /// As without the feature, but may fail or end the process.
    ///
    /// # Errors
    /// The error that `STEPBACK_FAULT` asks for at this point.
    pub fn point(name: &'static str) -> io::Result<()> {
        if let Some(file) = std::env::var_os("STEPBACK_FAULT_LOG")
            && let Ok(mut log) = std::fs::OpenOptions::new().append(true).create(true).open(file)
        {
            // One write: several threads pass points.
            let _ = log.write_all(format!("{name}\n").as_bytes());
        }
        let Some(plan) = plan() else { return Ok(()) };
        if plan.name != "*" && plan.name != name {
            return Ok(());
        }
        if plan.passed.fetch_add(1, Ordering::Relaxed) + 1 != plan.at {
            return Ok(());
        }
        match plan.action.as_str() {
            "eio" => Err(io::Error::from_raw_os_error(5)),
            "enospc" => Err(io::Error::from_raw_os_error(28)),
            "eacces" => Err(io::Error::from_raw_os_error(13)),
            "panic" => panic!("STEPBACK_FAULT asks for it at {name}"),
            _ => std::process::abort(),
        }
    }
}
