//! Both programs, end to end: one topic per file.

#![allow(clippy::unwrap_used, reason = "tests")]

mod architecture;
mod back_pressure;
mod bounds;
mod cases_git;
mod cases_hooks;
mod cases_loss;
mod cases_repos;
mod cases_rules;
mod cases_states;
mod cases_tree;
mod damaged_store;
mod detach;
mod diff;
mod doctor;
mod errors;
mod exact;
mod forget;
mod git_dirs;
mod gone_root;
mod hooks;
mod hooks_install;
mod hooks_roots;
mod hooks_turns;
mod hooks_wait;
mod hostile;
mod hostile_requests;
mod idle;
mod ids;
mod include;
mod isolation;
mod json;
mod kill;
mod kinds_of_project;
mod left_out;
mod lifecycle;
mod main_job;
mod maintenance;
mod many_clients;
mod mounts;
mod noise;
mod one_daemon;
mod packaging;
mod panics;
mod prune;
mod quota;
mod reader;
mod reconcile;
mod redo;
mod restart;
mod restore;
mod root_identity;
mod run;
mod security;
mod served;
mod service;
mod session;
mod settle;
mod shell_edits;
mod sizes;
mod soak_service;
mod standing_still;
mod support;
mod talk;
mod talk_words;
mod ten_thousand;
mod trace;
mod watching;

/// A file that isn't named above would be compiled by nobody and run by nobody.
#[test]
fn every_file_here_is_a_module() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("it");
    let main = std::fs::read_to_string(dir.join("main.rs")).unwrap();
    for entry in std::fs::read_dir(dir).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let module = name.trim_end_matches(".rs");
        assert!(
            module == "main" || main.contains(&format!("mod {module};\n")),
            "{name} is not in main.rs"
        );
    }
}
