//! On what was measured: nothing that tells whose machine it is.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Lines for the head of the report.
pub fn lines(top: &Path) -> Vec<String> {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map_or("unknown processor", |rest| {
            rest.trim_start_matches([' ', '\t', ':'])
        });
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok())
        .map_or(0, |kib| kib >> 20);
    let kernel = said("uname", &["-sr"], top);
    let system = said("stat", &["-f", "-c", "%T", "."], top);
    let commit = said("git", &["rev-parse", "--short=12", "HEAD"], top);
    let changed = match said("git", &["status", "--porcelain", "--untracked-files=no"], top).is_empty() {
        true => "",
        false => " with changes",
    };
    vec![
        format!("Machine: {model}, {cores} cores, {memory} GiB, {kernel}, {system}"),
        format!("Commit: {commit}{changed}"),
        format!("Date: {}", said("date", &["-u", "+%Y-%m-%d %H:%M UTC"], top)),
        format!("Beside it: {}, load {}", said("git", &["--version"], top), load()),
    ]
}

fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(2).collect::<Vec<_>>().join(", ")
}

fn said(program: &str, args: &[&str], cwd: &Path) -> String {
    Command::new(program)
        .args(args)
        .current_dir(cwd)
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        .unwrap_or_default()
}
