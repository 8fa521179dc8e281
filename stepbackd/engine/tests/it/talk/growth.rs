//! What a transcript costs that only grows, and what one costs that is too much for a moment.

use std::fs;
use std::path::PathBuf;

use stepback_engine::checkpoint::Trigger;
use stepback_engine::engine::Why;

use super::support::{Look, actions, append, look, slug, write};
use crate::support::{Sandbox, scale};

const ID: &str = "99999999-0000-4000-8000-000000000001";

fn transcript(sandbox: &Sandbox) -> PathBuf {
    let slug = slug(&sandbox.root());
    sandbox
        .path()
        .join(format!("home/.claude/projects/{slug}/{ID}.jsonl"))
}

/// Lines of about 1 KiB that hardly compress, `bytes` of them.
fn lines(sandbox: &Sandbox, state: &mut u64, bytes: usize) -> String {
    let mut text = String::new();
    let cwd = sandbox.root();
    while text.len() < bytes {
        text += &format!(
            "{{\"type\":\"user\",\"cwd\":\"{}\",\"sessionId\":\"{ID}\",\"text\":\"",
            cwd.display()
        );
        for _ in 0..128 {
            *state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            text += &format!("{:08x}", *state >> 32);
        }
        text += "\"}\n";
    }
    text
}

#[test]
fn growth_costs_what_grew() {
    let mut sandbox = Sandbox::with(|_| {});
    let file = transcript(&sandbox);
    let mut state = 1;
    // A tenth of it, or all: 50 MB that grow by 100 KB a hundred times.
    let tenths = scale(1, 10);
    write(&file, &lines(&sandbox, &mut state, 5_000_000 * tenths));
    sandbox.write("f", "0");
    let first = sandbox.capture_as(&Why::plain(Trigger::Auto)).unwrap().id;
    complete(&mut sandbox);
    let then = look(&file);
    for n in 1..=100 {
        append(&file, &lines(&sandbox, &mut state, 10_000 * tenths));
        sandbox.write("f", &n.to_string());
        sandbox.capture_as(&Why::plain(Trigger::Auto)).unwrap();
    }
    let last = look(&file);
    // A hundred checkpoints of a small tree cost something, too: a twin without the transcript says how much.
    let mut twin = Sandbox::with(|_| {});
    for n in 0..=100 {
        twin.write("f", &n.to_string());
        twin.capture_as(&Why::plain(Trigger::Auto)).unwrap();
    }
    let bytes = sandbox.engine().store_bytes().unwrap() - twin.engine().store_bytes().unwrap();
    let size = last.text.len() as u64;
    println!("{bytes} bytes in the store for {size}");
    assert!(
        bytes * 2 < size * 3,
        "{bytes} bytes in the store for a transcript of {size}"
    );
    sandbox.rewind(first);
    assert!(look(&file).text == then.text);
    sandbox.redo();
    assert!(look(&file).text == last.text);
    assert!(sandbox.engine().verify().unwrap().is_empty());
}

/// What a daemon does when there is nothing else to do.
fn complete(sandbox: &mut Sandbox) {
    while sandbox.engine().talk_lacks() {
        sandbox.engine().complete_talk().unwrap();
    }
}

/// A burst of 40 MiB of a transcript: too much for a moment. Its checkpoint, and the transcript then.
fn too_much(sandbox: &mut Sandbox, state: &mut u64) -> (u64, Look) {
    let file = transcript(sandbox);
    write(&file, &lines(sandbox, state, 40 << 20));
    sandbox.write("f", "1");
    let n = sandbox.capture_as(&Why::plain(Trigger::Auto)).unwrap().id;
    assert!(sandbox.engine().talk_lacks());
    (n, look(&file))
}

fn goes_back(sandbox: &mut Sandbox, n: u64, then: &Look) {
    let report = sandbox.rewind(n);
    assert_eq!(actions(&report), [("claude-code", ID, "rewind")]);
    assert!(look(&transcript(sandbox)) == *then, "it isn't as it was then");
    sandbox.redo();
}

#[test]
fn what_is_too_much_for_a_burst_follows_while_the_agent_goes_on() {
    let mut sandbox = Sandbox::with(|_| {});
    let file = transcript(&sandbox);
    let mut state = 1;
    let (n, then) = too_much(&mut sandbox, &mut state);
    append(&file, &lines(&sandbox, &mut state, 1 << 20));
    let more = look(&file);
    sandbox.write("f", "2");
    let next = sandbox.capture_as(&Why::plain(Trigger::Auto)).unwrap().id;
    append(&file, "{\"type\":\"later\"}\n");
    complete(&mut sandbox);
    sandbox.write("f", "3");
    sandbox.capture();
    goes_back(&mut sandbox, n, &then);
    goes_back(&mut sandbox, next, &more);
    assert!(sandbox.engine().verify().unwrap().is_empty());
}

#[test]
fn a_rewind_reads_what_was_too_much_and_nothing_else_is_put_back() {
    let mut sandbox = Sandbox::with(|_| {});
    let file = transcript(&sandbox);
    let mut state = 1;
    let (n, then) = too_much(&mut sandbox, &mut state);
    // Nobody had time for it; then the daemon ended.
    sandbox.reopen(true);
    append(&file, "{\"type\":\"later\"}\n");
    sandbox.write("f", "2");
    goes_back(&mut sandbox, n, &then);

    // One that isn't what it was is no source of the rest.
    let mut sandbox = Sandbox::with(|_| {});
    let file = transcript(&sandbox);
    let (n, _) = too_much(&mut sandbox, &mut state);
    fs::write(&file, lines(&sandbox, &mut state, 41 << 20)).unwrap();
    sandbox.write("f", "2");
    sandbox.capture();
    let report = sandbox.rewind(n);
    assert_eq!(actions(&report), [("claude-code", ID, "left")]);
}

#[test]
fn a_transcript_that_was_rewritten_in_the_middle_is_kept_as_it_is() {
    let mut sandbox = Sandbox::with(|_| {});
    let file = transcript(&sandbox);
    let mut state = 1;
    let text = lines(&sandbox, &mut state, 6 << 20);
    write(&file, &text);
    sandbox.write("f", "1");
    let one = sandbox.capture_as(&Why::plain(Trigger::Auto)).unwrap().id;
    // The first piece is other, the length the same; then it is shorter.
    let mut other = text.clone().into_bytes();
    other[200] = b'#';
    fs::write(&file, &other).unwrap();
    sandbox.write("f", "2");
    let two = sandbox.capture_as(&Why::plain(Trigger::Auto)).unwrap().id;
    fs::write(&file, &other[..3 << 20]).unwrap();
    sandbox.write("f", "3");
    sandbox.capture();
    sandbox.rewind(two);
    assert!(look(&file).text.as_bytes() == other);
    sandbox.rewind(one);
    assert!(look(&file).text == text);
}
