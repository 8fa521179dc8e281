//! Work that nobody waits for, at low priority.

use std::panic::resume_unwind;

use crate::daemon::STACK_BYTES;

/// How much such work gives way, as `nice` counts.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;
/// The lowest priority there is.
#[cfg(target_os = "linux")]
const NICE_MAX: i32 = 19;

/// Does `work` in a thread of its own that gives way to all others, and waits for it. Where there is no thread to be had, or
/// no priority of a thread, it is done all the same.
///
/// # Panics
/// When the work does.
pub(super) fn gently<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    // Threads of a pool that is begun in there would be of low priority for ever.
    stepback_engine::start_threads();
    let (mut work, mut done) = (Some(work), None);
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new()
            .name("gently".into())
            .stack_size(STACK_BYTES);
        let thread = builder.spawn_scoped(scope, || {
            give_way();
            done = work.take().map(|work| work());
        });
        if let Ok(Err(panic)) = thread.map(std::thread::ScopedJoinHandle::join) {
            resume_unwind(panic);
        }
    });
    match (done, work) {
        (Some(done), _) => done,
        (None, work) => work.expect("nobody else has taken it")(),
    }
}

/// Lowers the priority of the calling thread, which can't be raised again.
fn give_way() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{getpriority_process, setpriority_process};
        // No process means the calling thread, on Linux.
        let lowered =
            getpriority_process(None).and_then(|now| setpriority_process(None, (now + NICE).min(NICE_MAX)));
        if let Err(e) = lowered {
            tracing::debug!("the priority stays as it is: {e}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_done_and_only_there_is_the_priority_low() {
        let nice = || {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap_or_default();
            let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
            fields.nth(16).and_then(|nice| nice.parse::<i32>().ok())
        };
        let before = nice();
        let within = gently(nice);
        assert_eq!(nice(), before);
        // Elsewhere it stays.
        if cfg!(target_os = "linux") {
            assert_eq!(within, before.map(|before| (before + 10).min(19)));
        }
        let panic = std::panic::catch_unwind(|| gently(|| panic!("a test asks for it")));
        assert!(panic.is_err());
    }
}
