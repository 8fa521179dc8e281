//! Running another program to its end, but not for ever.

use std::io::{self, Read};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::SigSet;

/// How often it is looked whether the program has ended.
const POLL: Duration = Duration::from_millis(5);

/// The most bytes that are read of each of its outputs; one that writes more is at fault and is ended at the limit.
const OUTPUT_MAX: u64 = 1 << 20;

/// Runs `command` without input to its end and collects what it says. One that hasn't ended after `limit` is killed.
///
/// # Errors
/// When it can't be started; [`io::ErrorKind::TimedOut`] when it was killed.
pub fn output(command: &mut Command, limit: Duration) -> io::Result<Output> {
    let deadline = Instant::now() + limit;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let stdout = collected(child.stdout.take());
    let stderr = collected(child.stderr.take());
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() >= deadline {
            end(&mut child);
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("it hasn't ended within {} s", limit.as_secs()),
            ));
        }
        thread::sleep(POLL);
    };
    // Something that it has left running may hold its output open: then what isn't there by now isn't waited for.
    let rest = |from: Receiver<Vec<u8>>| {
        from.recv_timeout(
            deadline
                .saturating_duration_since(Instant::now())
                .min(Duration::from_secs(1)),
        )
        .unwrap_or_default()
    };
    Ok(Output {
        status,
        stdout: rest(stdout),
        stderr: rest(stderr),
    })
}

/// Kills the child, and no process that it may have started.
fn end(child: &mut Child) {
    // It may have ended this moment; then the wait says so at once.
    let _ = child.kill();
    let _ = child.wait();
}

/// What comes through the pipe until its end.
fn collected(pipe: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (to, from) = mpsc::channel();
    thread::spawn(move || {
        // It may outlive its use, and `run` counts on getting every signal itself. Blocking can't fail.
        let _ = SigSet::all().thread_block();
        let mut bytes = Vec::new();
        if let Some(pipe) = pipe {
            // What was read before an error is all there is to tell.
            let _ = pipe.take(OUTPUT_MAX).read_to_end(&mut bytes);
        }
        // Nobody may wait for it any longer.
        let _ = to.send(bytes);
    });
    from
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, limit: Duration) -> io::Result<Output> {
        output(Command::new("sh").args(["-c", script]), limit)
    }

    #[test]
    fn what_it_says_and_how_it_ends_is_told() {
        let said = sh("echo out; echo err >&2; exit 3", Duration::from_secs(20)).unwrap();
        assert_eq!((&*said.stdout, &*said.stderr), (&b"out\n"[..], &b"err\n"[..]));
        assert_eq!(said.status.code(), Some(3));
    }

    #[test]
    fn one_that_hangs_is_killed_at_the_limit() {
        let began = Instant::now();
        let error = sh("exec sleep 600", Duration::from_millis(100)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn what_it_leaves_running_holds_up_nobody() {
        let began = Instant::now();
        sh("sleep 20 & exit 0", Duration::from_secs(60)).unwrap();
        assert!(began.elapsed() < Duration::from_secs(15));
    }
}
