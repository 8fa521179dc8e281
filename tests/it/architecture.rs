//! The absences that ARCHITECTURE.md states, each looked for in the sources.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::top;

/// Every `.rs` file below `dir`, relative to the top level, with its text less comments and what follows
/// `#[cfg(test)]`; modules of tests are left out.
fn sources(dir: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut todo: Vec<PathBuf> = vec![top().join(dir)];
    while let Some(path) = todo.pop() {
        let is_test = path.file_name().is_some_and(|n| n == "tests" || n == "tests.rs");
        if is_test && path != top().join(dir) {
            continue;
        }
        if path.is_dir() {
            todo.extend(fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
        } else if path.extension().is_some_and(|e| e == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            // A module of tests stands last in its file, but for one that is a file of its own.
            let code = text
                .split("\n#[cfg(test)]\nmod tests {")
                .next()
                .unwrap_or_default();
            let lines = code.lines().filter(|l| !l.trim_start().starts_with("//"));
            let name = path.strip_prefix(top()).unwrap().to_str().unwrap().to_owned();
            found.push((name, lines.collect::<Vec<_>>().join("\n")));
        }
    }
    assert!(!found.is_empty(), "no sources in {dir}");
    found.sort();
    found
}

/// Asserts that below `dir` none of `words` stands in a file that isn't below one of `allowed`.
#[track_caller]
fn only_in(dir: &str, words: &[&str], allowed: &[&str]) {
    for (name, text) in sources(dir) {
        if allowed
            .iter()
            .any(|a| name == format!("{a}.rs") || name.starts_with(&format!("{a}/")))
        {
            continue;
        }
        for (at, line) in text.lines().enumerate() {
            let hit = words.iter().find(|w| line.contains(**w));
            assert!(
                hit.is_none(),
                "{} in {name}, code line {}: {line}",
                hit.unwrap(),
                at + 1
            );
        }
    }
}

fn dependencies(manifest: &str) -> Vec<String> {
    let text = fs::read_to_string(top().join(manifest)).unwrap();
    let section = text
        .split("[dependencies]\n")
        .nth(1)
        .unwrap()
        .split("\n[")
        .next()
        .unwrap();
    let name = |line: &str| line.split(['.', ' ', '=']).next().unwrap_or_default().to_owned();
    section
        .lines()
        .filter(|l| !l.starts_with('#') && !l.is_empty())
        .map(name)
        .collect()
}

#[test]
fn only_the_store_names_git2() {
    for dir in ["proto/src", "stepbackd/src", "stepback-client/src"] {
        only_in(dir, &["git2"], &[]);
    }
    only_in("stepbackd/engine/src", &["git2"], &["stepbackd/engine/src/store"]);
}

#[test]
fn only_one_place_names_notify() {
    only_in(
        "stepbackd/src",
        &[" notify::", "use notify"],
        &["stepbackd/src/watch/portable"],
    );
    only_in("stepbackd/engine/src", &[" notify::", "use notify"], &[]);
}

#[test]
fn only_one_file_names_the_codec() {
    for dir in [
        "proto/src",
        "stepbackd/src",
        "stepback-client/src",
        "stepbackd/engine/src",
    ] {
        only_in(dir, &["bincode"], &["proto/src/frame"]);
    }
}

#[test]
fn only_one_file_takes_paths_from_the_wire() {
    only_in(
        "stepbackd/src",
        &["&WirePath", ": WirePath)", "Option<WirePath>"],
        &["stepbackd/src/named"],
    );
    let handler = fs::read_to_string(top().join("stepbackd/src/handler.rs")).unwrap();
    assert!(
        !handler.contains("place.as_path()") && !handler.contains(".path.as_path()"),
        "unchecked"
    );
}

#[test]
fn the_engine_is_synchronous_and_has_no_clock_environment_or_terminal() {
    let words = [
        "tokio",
        "async fn",
        "SystemTime::now",
        "Instant::now",
        "Timestamp::now",
        "println!",
        "process::exit",
    ];
    only_in("stepbackd/engine/src", &words, &[]);
    // Fault points are for tests, behind a feature, and named by a variable.
    only_in(
        "stepbackd/engine/src",
        &["env::var"],
        &["stepbackd/engine/src/fault"],
    );
    assert!(!dependencies("stepbackd/engine/Cargo.toml").contains(&"tokio".to_owned()));
}

#[test]
fn the_client_depends_on_proto_alone() {
    let have = dependencies("stepback-client/Cargo.toml");
    assert!(have.contains(&"stepback-proto".to_owned()), "{have:?}");
    for other in ["stepback-engine", "stepbackd", "git2", "tokio", "notify"] {
        assert!(!have.contains(&other.to_owned()), "{other}: {have:?}");
    }
}

#[test]
fn the_wire_knows_neither_side() {
    let have = dependencies("proto/Cargo.toml");
    assert!(have.iter().all(|d| !d.starts_with("stepback")), "{have:?}");
}

/// Calls by which a file below a root could be changed. What the store, the journal and the cache do is below STATE.
#[test]
fn nothing_but_restore_writes_below_a_root() {
    let words = [
        "renameat",
        "unlinkat",
        "symlinkat",
        "mkdirat",
        "mknodat",
        "linkat(",
        "fchmodat",
        "utimensat",
        "O_WRONLY",
        "O_RDWR",
        "O_CREAT",
        "fsetxattr",
    ];
    let allowed = [
        "restore",
        "store",
        "root",
        "durable",
        "archive",
        // Files of agents; of aider, two in the root.
        "conversation/put",
    ]
    .map(|m| format!("stepbackd/engine/src/{m}"));
    only_in(
        "stepbackd/engine/src",
        &words,
        &allowed.each_ref().map(String::as_str),
    );
    only_in(
        "stepbackd/src",
        &["renameat", "unlinkat", "symlinkat", "mkdirat"],
        &[],
    );
}

#[test]
fn one_small_file_has_unsafe_code() {
    for dir in [
        "proto/src",
        "stepbackd/src",
        "stepback-client/src",
        "stepbackd/engine/src",
        "tests",
    ] {
        // In two words, so that this line isn't found.
        only_in(
            dir,
            &[
                concat!("uns", "afe {"),
                concat!("uns", "afe fn"),
                concat!("allow(uns", "afe_code"),
            ],
            &["stepbackd/src/memory"],
        );
    }
}

/// Neither side knows the other: each has a list of the agents.
#[test]
fn both_sides_call_the_agents_the_same() {
    let names = |file: &str| -> Vec<String> {
        let text = fs::read_to_string(top().join(file)).unwrap();
        let lines = text.lines().map(str::trim);
        lines
            .filter(|line| line.starts_with("Self::") && line.contains(" => \""))
            .map(str::to_owned)
            .collect()
    };
    let client = names("stepback-client/src/agents/mod.rs");
    assert!(
        client.contains(&"Self::Codex => \"codex\",".to_owned()),
        "{client:?}"
    );
    assert_eq!(client, names("stepbackd/engine/src/conversation/mod.rs"));
}

#[test]
fn a_service_is_told_of_every_variable_that_moves_what_agents_keep() {
    let read = |file: &str| fs::read_to_string(top().join(file)).unwrap();
    let daemon = read("stepbackd/src/environment.rs");
    let homes = daemon.split("\nfn homes(").nth(1).unwrap().split("\n}\n").next();
    let (client, readme) = (read("stepback-client/src/environment.rs"), read("README.md"));
    let told = client
        .split("const FOR_SERVICE")
        .nth(1)
        .unwrap()
        .split("];")
        .next();
    let is_variable = |word: &&str| {
        let plain = |b: u8| b.is_ascii_uppercase() || b == b'_';
        word.len() > 1 && word.bytes().all(plain) && *word != "HOME"
    };
    let quoted = homes.unwrap().split('"').skip(1).step_by(2);
    let named: Vec<&str> = quoted.filter(is_variable).collect();
    assert!(named.contains(&"CODEX_HOME"), "{named:?}");
    for name in named {
        assert!(
            told.unwrap().contains(&format!("\"{name}\"")),
            "a service: {name}"
        );
        assert!(readme.contains(&format!("`{name}`")), "README.md: {name}");
    }
}

#[test]
fn what_the_documents_name_exists() {
    for document in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"] {
        let text = fs::read_to_string(top().join(document)).unwrap();
        let named = text.split('`').skip(1).step_by(2);
        let is_path = |word: &&str| {
            [
                "proto/",
                "stepbackd/",
                "stepback-client/",
                "tests/",
                "systemd/",
                "launchd/",
                ".ci/",
            ]
            .iter()
            .any(|dir| word.starts_with(dir))
                && !word.contains([' ', '*', '<', '{'])
        };
        for word in named.filter(is_path) {
            assert!(
                Path::new(&top()).join(word).exists(),
                "{document} names {word}, which isn't there"
            );
        }
    }
}
