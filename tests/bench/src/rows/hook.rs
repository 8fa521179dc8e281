//! What an agent waits for at each of its hooks.

use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;

use super::Bench;
use crate::report::{Target, Unit};
use crate::samples::{Samples, timed};
use crate::tree::{self, Tree};

const CALLS: usize = 100;

/// `hook claude-code` with a daemon and without one, whole command: a tool call that destroys nothing, told by stdin.
pub fn measure(bench: &mut Bench<'_>) {
    let sandbox = bench.sandbox;
    let tree = Tree::make(sandbox, "hook", 100, 0);
    let payload = sandbox.dir().join("tmp/payload.json");
    let told = format!(
        "{{\"session_id\":\"s\",\"cwd\":{:?},\"hook_event_name\":\"PreToolUse\",\"tool_name\":\"Read\",\"tool_input\":{{}}}}",
        tree.path
    );
    fs::write(&payload, told).expect("the sandbox is ours");
    let daemon = sandbox.daemon();
    sandbox.stepback(&tree.path, &["attach"]).exits(0);
    let [mut with, mut without] = [const { Samples::of_none() }; 2];
    for _ in 0..CALLS {
        with.push(hook(bench, &tree.path, &payload));
    }
    sandbox.stepback(&tree.path, &["daemon", "stop"]).exits(0);
    drop(daemon);
    for _ in 0..CALLS {
        without.push(hook(bench, &tree.path, &payload));
    }
    for (daemon, samples) in [("a", with), ("no", without)] {
        bench.report.row(
            format!("hook of an agent with {daemon} daemon, whole command"),
            Unit::Ms,
            &samples,
            None,
            Target::P99(50.0),
        );
    }
    tree::remove(&sandbox.state());
    tree::remove(&tree.path);
}

fn hook(bench: &Bench<'_>, place: &Path, payload: &Path) -> f64 {
    let sandbox = bench.sandbox;
    let mut command = sandbox.command(sandbox.program("stepback"), place);
    command
        .args(["hook", "claude-code"])
        .stdin(File::open(payload).expect("written before"))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let (status, took) = timed(|| command.status());
    assert!(
        status.is_ok_and(|status| status.success()),
        "a hook always exits 0"
    );
    took
}
