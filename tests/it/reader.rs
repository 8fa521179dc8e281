//! Whoever reads the output goes away.

use std::process::Stdio;
use std::time::Duration;

use stepback_tests::{Guarded, Sandbox, eventually};

#[test]
fn a_reader_that_left_ends_what_waits() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.attach();
    for args in [&["watch"][..], &["--json", "watch"], &["daemon", "logs", "-f"]] {
        let mut command = sandbox.command(sandbox.program("stepback"), &project.path);
        command.args(args).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = Guarded::new(command.spawn().unwrap());
        drop(child.child().stdout.take());
        let mut code = None;
        eventually("it ends", Duration::from_secs(20), || {
            code = child.child().try_wait().unwrap();
            code.is_some()
        });
        assert_eq!(code.and_then(|status| status.code()), Some(0), "{args:?}");
    }
}
