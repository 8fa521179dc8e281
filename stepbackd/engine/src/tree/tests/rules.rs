//! What is captured, with git as the judge.

use std::collections::BTreeSet;
use std::fs;

use proptest::prelude::*;

use super::fixture::Fixture;
use crate::error::Error;
use crate::path::TreePath;
use crate::rules::{Rules, Stale};

fn captured(at: &mut Fixture) -> BTreeSet<String> {
    at.scan();
    at.captured()
}

/// What git would add or has, as far as it is there.
fn by_git(at: &Fixture) -> BTreeSet<String> {
    let out = at.git(&["ls-files", "-z", "-c", "-o", "--exclude-standard"]);
    out.split(|byte| *byte == 0)
        .filter(|path| !path.is_empty())
        .map(|path| String::from_utf8(path.to_vec()).unwrap())
        .filter(|path| at.path(path).symlink_metadata().is_ok())
        .collect()
}

fn set(paths: &[&str]) -> BTreeSet<String> {
    paths.iter().map(|path| (*path).to_owned()).collect()
}

fn path(text: &str) -> TreePath {
    TreePath::new(text.as_bytes()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn git_would_take_the_same(
        files in prop::collection::btree_set("[abc](/[abc]){0,2}/[xyz]\\.(o|c)", 1..25),
        ignores in prop::collection::btree_map("(|[abc]/|[abc]/[abc]/)", "((!|/)?([abcxyz*?]|\\*\\.o|\\*\\*/|[abc]/){1,2}/?\n){1,4}", 0..4),
        exclude in "(!?[abc]/?\n){0,2}",
        global in "(!?[xyz]*\\.[oc]\n){0,2}",
        tracked in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let mut at = Fixture::new();
        at.git(&["init", "-q"]);
        for file in &files {
            at.write(file, "");
        }
        for (dir, text) in &ignores {
            at.write(&format!("{dir}.gitignore"), text);
        }
        fs::write(at.path(".git/info/exclude"), &exclude).unwrap();
        fs::create_dir_all(at.home.join(".config/git")).unwrap();
        fs::write(at.home.join(".config/git/ignore"), &global).unwrap();
        let files: Vec<_> = files.into_iter().collect();
        for index in tracked {
            at.git(&["add", "-f", index.get(&files).as_str()]);
        }
        let theirs = by_git(&at);
        prop_assert_eq!(captured(&mut at), theirs.clone());
        // The same answers by path, and from the record.
        let snapshot = at.persist();
        let rules = at.rules.as_ref().unwrap();
        let recorded = Rules::of_snapshot(&at.store, snapshot, &rules.outside()).unwrap();
        for file in &files {
            prop_assert_eq!(!rules.ignores(&path(file), false).unwrap(), theirs.contains(file), "{}", file);
            if recorded.ignores(&path(file), false).unwrap() == theirs.contains(file) {
                let is_tracked = !at.git(&["ls-files", "-z", file]).is_empty();
                // A `.gitignore` that is itself ignored isn't in the record.
                let shown = ignores.keys().all(|dir| theirs.contains(&format!("{dir}.gitignore")));
                prop_assert!(is_tracked || !shown, "{}", file);
            }
        }
    }
}

#[test]
fn the_built_in_list_has_the_last_word() {
    let mut at = Fixture::new();
    for file in [
        "node_modules/m/x",
        "target/x",
        "r/target/x",
        "r/Cargo.toml",
        "d/.DS_Store",
        ".env",
        "build/x",
        "venv",
    ] {
        at.write(file, "");
    }
    assert_eq!(
        captured(&mut at),
        set(&["target/x", "r/Cargo.toml", ".env", "build/x", "venv"])
    );
    let hits = at.rules.as_ref().unwrap().builtin_hits();
    assert_eq!(hits, ["node_modules/", "target/", ".DS_Store"]);
    assert_eq!(
        at.watch.0.lock().unwrap().len(),
        5,
        "ignored directories aren't watched"
    );
    at.write(".gitignore", "!node_modules/\n!target\n");
    at.update(&[".gitignore"]);
    assert!(
        at.captured()
            .is_superset(&set(&["node_modules/m/x", "r/target/x"]))
    );
    fs::remove_file(at.path(".gitignore")).unwrap();
    at.update(&[".gitignore"]);
    assert_eq!(at.captured().len(), 5);
    fs::remove_file(at.path("r/Cargo.toml")).unwrap();
    at.update(&["r/Cargo.toml"]);
    assert!(at.captured().contains("r/target/x"));
}

#[test]
fn stepbackignore_beats_gitignore_in_one_directory_only() {
    let mut at = Fixture::new();
    at.write(".gitignore", "a\nb\n");
    at.write(".stepbackignore", "!a\nc\n");
    at.write("d/.gitignore", "!c\n");
    for file in ["a", "b", "c", "d/a", "d/c"] {
        at.write(file, "");
    }
    assert_eq!(
        captured(&mut at),
        set(&[".gitignore", ".stepbackignore", "a", "d/.gitignore", "d/a", "d/c"])
    );
}

#[test]
fn tracked_files_are_captured_whatever_is_ignored() {
    let mut at = Fixture::new();
    at.git(&["init", "-q"]);
    at.write(".gitignore", "*.log\n/out/\n");
    for file in ["a.log", "out/kept", "out/lost", "out/deep/kept"] {
        at.write(file, "");
    }
    at.git(&["add", "-f", "a.log", "out/kept"]);
    assert_eq!(captured(&mut at), set(&[".gitignore", "a.log", "out/kept"]));
    at.git(&["add", "-f", "out/deep/kept"]);
    at.update(&[]);
    assert_eq!(
        at.captured(),
        set(&[".gitignore", "a.log", "out/kept", "out/deep/kept"])
    );
    at.git(&["rm", "-q", "--cached", "a.log", "out/kept"]);
    at.update(&[]);
    assert_eq!(at.captured(), set(&[".gitignore", "out/deep/kept"]));
}

#[test]
fn a_repository_inside_begins_anew() {
    let mut at = Fixture::new();
    at.git(&["init", "-q"]);
    at.write(".gitignore", "*.o\n/gone/\n");
    at.write(".stepbackignore", "*.tmp\n");
    for dir in ["sub", "gone"] {
        fs::create_dir(at.path(dir)).unwrap();
        at.git_in(dir, &["init", "-q"]);
        at.write(&format!("{dir}/.gitignore"), "*.c\n");
    }
    for file in [
        "a.o",
        "sub/a.o",
        "sub/a.c",
        "sub/forced.c",
        "sub/a.tmp",
        "gone/x",
        "sub/node_modules/x",
    ] {
        at.write(file, "");
    }
    at.git_in("sub", &["add", "-f", "forced.c"]);
    fs::write(at.path("sub/.git/info/exclude"), "secret\n").unwrap();
    at.write("sub/secret", "");
    assert_eq!(
        captured(&mut at),
        set(&[
            ".gitignore",
            ".stepbackignore",
            "sub/.gitignore",
            "sub/a.o",
            "sub/forced.c"
        ])
    );
    let outside = at.rules.as_ref().unwrap().outside();
    assert_eq!(outside.exclude[&path("sub")], "secret\n");
    fs::remove_dir_all(at.path("sub/.git")).unwrap();
    at.update(&["sub"]);
    assert_eq!(
        at.captured(),
        set(&[".gitignore", ".stepbackignore", "sub/.gitignore", "sub/secret"])
    );
    at.git_in("sub", &["init", "-q"]);
    at.update(&["sub"]);
    assert!(at.captured().contains("sub/a.o"));
}

#[test]
fn worktrees_submodules_and_odd_formats() {
    let mut at = Fixture::new();
    for format in [&["--ref-format=reftable"][..], &["--object-format=sha256"], &[]] {
        let _ = fs::remove_dir_all(at.path(".git"));
        at.git(&[&["init", "-q"], format].concat());
        at.write(".gitignore", "*.log\n");
        at.write("a.log", "");
        at.git(&["update-index", "--force-write-index", "--index-version", "4"]);
        at.git(&["add", "-f", "a.log", ".gitignore"]);
        at.git(&["update-index", "--split-index"]);
        at.rules = None;
        assert!(captured(&mut at).contains("a.log"), "{format:?}");
    }
    at.git(&["commit", "-qm", "one"]);
    at.git(&["worktree", "add", "-q", "wrk"]);
    fs::write(at.path(".git/info/exclude"), "shared\n").unwrap();
    at.write("wrk/shared", "");
    at.write("wrk/b.log", "");
    let found = captured(&mut at);
    assert!(found.contains("wrk/a.log") && !found.contains("wrk/b.log") && !found.contains("wrk/shared"));
    at.git(&["submodule", "--quiet", "add", "-f", "./.git", "sub"]);
    at.write(".gitignore", "sub\n");
    let found = captured(&mut at);
    assert!(
        found.contains("sub/a.log"),
        "a submodule is in the index: {found:?}"
    );
}

#[test]
fn a_root_below_the_top_of_its_work_tree() {
    let mut at = Fixture::new();
    at.git(&["init", "-q"]);
    at.write(".gitignore", "/in/a\n*.o\n/in/deep/x\n");
    fs::write(at.path(".git/info/exclude"), "/in/e\n").unwrap();
    for file in [
        "in/a",
        "in/b",
        "in/e",
        "in/f.o",
        "in/g.o",
        "in/deep/x",
        "in/deep/y",
    ] {
        at.write(file, "");
    }
    at.git(&["add", "-f", "in/g.o"]);
    at.go_below("in");
    assert_eq!(captured(&mut at), set(&["b", "g.o", "deep/y"]));
    let snapshot = at.persist();
    let recorded = Rules::of_snapshot(&at.store, snapshot, &at.rules.as_ref().unwrap().outside()).unwrap();
    for (file, ignored) in [("a", true), ("b", false), ("e", true), ("deep/x", true)] {
        assert_eq!(recorded.ignores(&path(file), false).unwrap(), ignored, "{file}");
    }
    fs::write(at.root().parent().unwrap().join(".gitignore"), "b\n").unwrap();
    at.update(&[]);
    assert_eq!(at.captured(), set(&["a", "f.o", "g.o", "deep/x", "deep/y"]));
}

#[test]
fn include_patterns_reach_into_ignored_directories() {
    let mut at = Fixture::new();
    at.include = vec!["*.env".into(), "/notes/".into()];
    at.write(".gitignore", "/notes/\n/out/\n*.env\n");
    for file in [
        "notes/a",
        "notes/b/c",
        "out/x.env",
        "out/y",
        "z.env",
        "node_modules/w.env",
    ] {
        at.write(file, "");
    }
    assert_eq!(
        captured(&mut at),
        set(&[".gitignore", "notes/a", "notes/b/c", "out/x.env", "z.env"])
    );
    fs::remove_file(at.path("out/x.env")).unwrap();
    at.update(&["out/x.env"]);
    assert_eq!(
        at.tree.node(&path("out")),
        None,
        "it shows only with something in it"
    );
    at.write("out/new.env", "");
    assert!(at.update(&["out/new.env"]).changed);
    assert!(at.captured().contains("out/new.env"));
}

#[test]
fn rules_that_can_not_be_read_fail_the_capture() {
    let mut at = Fixture::new();
    at.git(&["init", "-q"]);
    at.write("a", "");
    at.capture_all();
    fs::create_dir(at.home.join("excludes")).unwrap();
    at.git(&["config", "core.excludesFile", "~/excludes"]);
    let error = at.try_scan().unwrap_err();
    assert!(
        matches!(&error, Error::Rules { path, .. } if path.ends_with("home/excludes")),
        "{error}"
    );
    assert_eq!(at.tree.files(), 1, "what is known stays");
    at.git(&["config", "--unset", "core.excludesFile"]);
    at.scan();
    fs::write(at.path(".git/index"), "rubbish").unwrap();
    assert!(matches!(at.try_scan(), Err(Error::Rules { .. })));
    fs::remove_file(at.path(".git/index")).unwrap();
    at.scan();
    fs::write(at.path(".git/HEAD"), "").unwrap();
    at.scan();
}

#[test]
fn git_is_not_sent_where_it_would_wait() {
    use nix::sys::stat::Mode;

    let mut at = Fixture::new();
    at.git(&["init", "-q"]);
    at.write("a", "");
    at.git(&["add", "a"]);
    at.capture_all();
    let begun = std::time::Instant::now();
    for name in ["HEAD", "index", "config", "config.worktree", "commondir"] {
        let (file, kept) = (at.path(&format!(".git/{name}")), at.path(".git/kept"));
        let was_there = fs::rename(&file, &kept).is_ok();
        for zero in [false, true] {
            if zero {
                std::os::unix::fs::symlink("/dev/zero", &file).unwrap();
            } else {
                nix::unistd::mkfifo(&file, Mode::S_IRWXU).unwrap();
            }
            at.rules = None;
            let error = at.try_scan().unwrap_err();
            assert!(
                matches!(&error, Error::Rules { path, .. } if path.ends_with(name)),
                "{name}: {error}"
            );
            fs::remove_file(&file).unwrap();
        }
        if was_there {
            fs::rename(&kept, &file).unwrap();
        }
        at.scan();
    }
    assert!(begun.elapsed() < std::time::Duration::from_secs(9));
    // Links to files are as good as files, and nothing is an empty file.
    fs::rename(at.path(".git/config"), at.path(".git/kept")).unwrap();
    std::os::unix::fs::symlink("kept", at.path(".git/config")).unwrap();
    std::os::unix::fs::symlink("/dev/null", at.home.join(".gitconfig")).unwrap();
    at.scan();
}

#[test]
fn settings_that_change_nothing_are_asked_for_once() {
    let mut at = Fixture::new();
    at.git(&["init", "-q"]);
    at.write("a", "");
    at.scan();
    at.git(&["config", "user.name", "x"]);
    let mut rules = at.rules.take().unwrap();
    assert_eq!(rules.refresh().unwrap(), Stale::Nothing);
    at.git(&["add", "a"]);
    assert_eq!(rules.refresh().unwrap(), Stale::Paths([path("a")].into()));
    assert_eq!(rules.refresh().unwrap(), Stale::Nothing);
    fs::write(at.path(".git/info/exclude"), "a\n").unwrap();
    assert_eq!(rules.refresh().unwrap(), Stale::All);
    fs::remove_dir_all(at.path(".git")).unwrap();
    assert_ne!(rules.refresh().unwrap(), Stale::Nothing);
    assert_eq!(rules.refresh().unwrap(), Stale::Nothing);
    fs::rename(at.root(), at.home.join("moved")).unwrap();
    assert!(matches!(rules.refresh(), Err(Error::RootMissing(_))));
    fs::create_dir(at.root()).unwrap();
    assert_eq!(rules.refresh().unwrap(), Stale::All);
}

#[test]
fn the_users_files_stay_untouched() {
    let mut at = Fixture::new();
    at.git(&["init", "-q"]);
    let marker = at.home.join("ran");
    for (key, value) in [
        ("core.fsmonitor", "touch"),
        ("filter.x.clean", "touch"),
        ("alias.ls-files", "!touch"),
    ] {
        at.git(&["config", key, &format!("{value} {}", marker.display())]);
    }
    at.write(".gitattributes", "* filter=x\n");
    at.write("a", "");
    let state = |at: &Fixture| {
        let mut found: Vec<_> = fs::read_dir(at.path(".git"))
            .unwrap()
            .map(|entry| entry.unwrap())
            .collect();
        found.sort_by_key(std::fs::DirEntry::file_name);
        found
            .iter()
            .map(|entry| (entry.file_name(), entry.metadata().unwrap().modified().unwrap()))
            .collect::<Vec<_>>()
    };
    at.git(&[
        "-c",
        "core.fsmonitor=false",
        "update-index",
        "--add",
        "--cacheinfo",
        "100644,4b825dc642cb6eb9a060e54bf8d69288fbee4904,a",
    ]);
    let before = state(&at);
    at.scan();
    assert_eq!(state(&at), before);
    assert!(!marker.exists());
}

#[test]
fn ignore_files_that_are_none() {
    let mut at = Fixture::new();
    fs::create_dir(at.path(".gitignore")).unwrap();
    at.write("rules", "a\n");
    at.write("d/a", "");
    std::os::unix::fs::symlink("../rules", at.path("d/.gitignore")).unwrap();
    assert!(captured(&mut at).contains("d/a"));
}

#[test]
fn conditional_settings_and_case() {
    let mut at = Fixture::new();
    at.git(&["init", "-q"]);
    let config = format!("[includeIf \"gitdir:{}/\"]\n path = extra\n", at.root().display());
    fs::write(at.home.join(".gitconfig"), config).unwrap();
    fs::write(
        at.home.join("extra"),
        "[core]\n excludesFile = ~/mine\n ignoreCase\n",
    )
    .unwrap();
    fs::write(at.home.join("mine"), "SECRET\n").unwrap();
    at.git(&["config", "core.x", "1"]);
    for file in ["secret", "open"] {
        at.write(file, "");
    }
    assert_eq!(captured(&mut at), set(&["open"]));
    fs::write(at.home.join("mine"), "OPEN\n").unwrap();
    at.update(&[]);
    assert_eq!(at.captured(), set(&["secret"]));
}

#[test]
fn without_git_ignore_rules_still_hold() {
    let mut at = Fixture::new();
    at.git(&["init", "-q"]);
    at.without_git = true;
    at.write(".gitignore", "a\n");
    fs::write(at.path(".git/info/exclude"), "b\n").unwrap();
    for file in ["a", "b", "c"] {
        at.write(file, "");
    }
    at.git(&["add", "-f", "a"]);
    assert_eq!(captured(&mut at), set(&[".gitignore", "c"]));
    assert_eq!(at.rules.as_ref().unwrap().notes().len(), 1);
}

#[test]
fn forgotten_and_own_names_are_left_out() {
    let mut at = Fixture::new();
    at.forgotten = vec![path("d/secret")];
    for file in [
        "d/secret/x",
        "d/.stepback-tmp-0123456789abcdef",
        "d/.stepback-tmp-mine",
        ".aider.chat.history.md",
        "d/.aider.input.history",
        "e",
    ] {
        at.write(file, "");
    }
    assert_eq!(
        captured(&mut at),
        set(&["d/.aider.input.history", "d/.stepback-tmp-mine", "e"])
    );
    let named: Vec<_> = at.tree.not_captured().into_iter().map(|n| n.path).collect();
    assert_eq!(
        named,
        [path("d/.stepback-tmp-0123456789abcdef"), path("d/secret")]
    );
}
