//! Ways in which tools of this kind have harmed the user's git, or were harmed by its settings.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use stepback_tests::Sandbox;

use crate::support::{committed, entry};

/// Restoring moved the branch, so that commits made later dropped off it.
#[test]
fn b13_head_and_history_stay() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    committed(&project);
    project.attach();
    let first = project.save();
    project.sh("printf 'v2\n' > a; git commit -qam two");
    project.save();
    let head = project.sh("git rev-parse HEAD").text();
    let git = project.git();
    project.rewind(first);
    git.same(&project.git(), "after rewind");
    assert_eq!(project.read("a"), b"v1\n");
    assert_eq!(project.sh("git rev-parse HEAD").text(), head);
    assert_eq!(project.sh("git log --oneline | wc -l").text().trim(), "2");
    assert_eq!(project.sh("git status --porcelain").text(), " M a\n");
}

/// Line endings: changes that aren't there, or bytes that don't come back.
#[test]
fn b24_line_endings_are_bytes() {
    for autocrlf in ["true", "input", "false"] {
        let sandbox = Sandbox::new();
        let project = sandbox.project("p");
        project.sh(&format!(
            "git init -q .; git config core.autocrlf {autocrlf}; printf '* text=auto\n' > .gitattributes
             printf 'a\\r\\nb\\r\\n' > w; git add -A 2>/dev/null; git commit -qm one"
        ));
        let status = project.sh("git status --porcelain").text();
        project.attach();
        let first = project.save();
        let again = project.json(&["save"]);
        assert_eq!(
            (&again["id"], &again["created"]),
            (&first.into(), &false.into()),
            "autocrlf={autocrlf}"
        );
        project.sh("printf 'c\n' > w");
        project.save();
        project.rewind(first);
        assert_eq!(project.read("w"), b"a\r\nb\r\n", "autocrlf={autocrlf}");
        assert!(project.sha256("w").starts_with("58055bdcc73787eb"));
        assert_eq!(
            project.sh("git status --porcelain").text(),
            status,
            "autocrlf={autocrlf}"
        );
    }
}

/// Clean and smudge filters: undo went to the network and hung.
#[test]
fn b25_no_filter_is_run() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let marker = sandbox.dir().join("marker");
    let filter = format!("sh -c 'echo ran >> {}; sleep 600'", marker.display());
    project.sh(&format!(
        "git init -q .; printf 'x\n' > a; git add a; git commit -qm one
         printf '*.bin filter=cap\n' > .gitattributes; git config filter.cap.required true
         git config filter.cap.clean \"{filter}\"; git config filter.cap.smudge \"{filter}\"; printf 'MixedCase\n' > w.bin"
    ));
    let started = Instant::now();
    project.attach();
    let first = project.save();
    project.sh("printf 'other\n' > w.bin");
    project.save();
    project.rewind(first);
    let took = started.elapsed();
    assert!(!marker.exists(), "a filter was run");
    assert_eq!(project.read("w.bin"), b"MixedCase\n");
    let tree = entry(&project, first)["tree"].as_str().unwrap().to_owned();
    let blob = project.store_git(&format!("rev-parse {tree}:w.bin"));
    assert_eq!(blob.trim(), "70bbca0336a5fef76dd8c5f44b391435447097c2");
    assert!(took < Duration::from_secs(20), "nothing hung: {took:?}");
}

/// The user's git settings hid a change: the second checkpoint held the first content.
#[test]
fn b27_no_setting_hides_a_change() {
    for setup in [
        "git config core.ignorestat true",
        "git update-index --assume-unchanged u",
        "git update-index --skip-worktree u",
        "git config core.splitIndex true; git update-index --split-index",
        "git config core.untrackedCache true; git update-index --untracked-cache || true",
        "git config core.checkStat minimal",
        ":",
    ] {
        let sandbox = Sandbox::new();
        let project = sandbox.project("p");
        project.sh(&format!(
            "git init -q .; printf 'before\n' > u; git add u; git commit -qm one; {setup}"
        ));
        project.attach();
        let first = project.save();
        // The same size and, by the clock that people set, the same time.
        project.sh("touch -r u ../stamp; printf 'after!\n' > u; touch -r ../stamp u");
        let second = project.save();
        assert_ne!(first, second, "{setup}");
        assert_eq!(project.show(second, "u"), b"after!\n", "{setup}");
        assert!(project.sha256("u").starts_with("94b26538"), "{setup}");
        assert_eq!(project.show(first, "u"), b"before\n", "{setup}");
    }
}

/// Undo overwrote what was staged.
#[test]
fn b29_what_is_staged_stays() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    committed(&project);
    project.sh("printf 'v2\n' > a; git add a; printf 'v3\n' > a; printf 'n\n' > n; git add -N n");
    let status = project.sh("git status --porcelain").text();
    let index = project.sha256(".git/index");
    project.attach();
    let first = project.save();
    project.sh("printf 'agent\n' > a");
    project.save();
    project.rewind(first);
    assert_eq!(project.sha256(".git/index"), index);
    assert_eq!(project.sh("git show :a").text(), "v2\n");
    assert_eq!(project.read("a"), b"v3\n");
    assert!(project.sha256("a").starts_with("1875add404b2a01d"));
    assert_eq!(
        project.sh("git status --porcelain").text(),
        status,
        "n is still intent-to-add"
    );
}

/// The same while a cherry-pick and a rebase have stopped.
#[test]
fn b29_stopped_operations_stay_as_they_are() {
    for verb in ["cherry-pick side", "rebase side"] {
        let sandbox = Sandbox::new();
        let project = sandbox.project("p");
        committed(&project);
        project.sh(&format!(
            "git checkout -q -b side; printf 'side\n' > a; git commit -qam side; git checkout -q main
             printf 'main\n' > a; git commit -qam main; git {verb} >/dev/null 2>&1 && exit 1; git ls-files -u | wc -l"
        ));
        let stages = project.sh("git ls-files -s -u").text();
        assert_eq!(stages.lines().count(), 3, "{verb}");
        let git = project.git();
        project.attach();
        let first = project.save();
        let tree = project.tree();
        project.sh("printf 'agent\n' > a");
        project.rewind(first);
        tree.same(&project.tree(), verb);
        git.same(&project.git(), verb);
    }
}

/// `GIT_DIR` in the environment: checkpoints were committed to the wrong repository.
#[test]
fn b30_variables_that_steer_git_have_no_effect() {
    let sandbox = Sandbox::new();
    let (one, two) = (sandbox.project("n1"), sandbox.project("n2"));
    committed(&one);
    committed(&two);
    two.sh("printf 'ignored\n' > .gitignore; printf 'kept out\n' > ignored");
    let git = (one.git(), two.git());
    let dir = one.file(".git");
    let (index, objects) = (sandbox.dir().join("x"), sandbox.dir().join("o"));
    let env = [
        ("GIT_DIR", dir.to_str().unwrap()),
        ("GIT_WORK_TREE", one.path.to_str().unwrap()),
        ("GIT_INDEX_FILE", index.to_str().unwrap()),
        ("GIT_OBJECT_DIRECTORY", objects.to_str().unwrap()),
        ("GIT_NAMESPACE", "q"),
        ("GIT_CEILING_DIRECTORIES", "/"),
    ];
    let attached = two.stepback_env(&["--json", "attach"], &env).exits(0).json();
    assert_eq!(attached["path"], two.path.to_str().unwrap());
    let first = two.stepback_env(&["--json", "save"], &env).exits(0).json()["id"].to_string();
    two.sh("printf 'v2\n' > a");
    two.stepback_env(&["save"], &env).exits(0);
    two.stepback_env(&["rewind", &first, "-y"], &env).exits(0);
    assert_eq!(two.read("a"), b"v1\n");
    git.0.same(&one.git(), "in the repository that GIT_DIR named");
    git.1.same(&two.git(), "in the project's own");
    assert!(!index.exists() && !objects.exists());
    let latest = two.list()[0]["commit"].as_str().unwrap().to_owned();
    assert_eq!(
        two.store_git(&format!("ls-tree -r --name-only {latest}")),
        ".gitignore\na\n"
    );
    let fsck = two
        .stepback_env(&["git", "--", "fsck", "--connectivity-only"], &env)
        .exits(0);
    assert!(!fsck.stderr.contains("error"), "{fsck:#?}");
}

/// Signing: a passphrase window at every checkpoint.
#[test]
fn b32_no_commit_of_ours_is_signed() {
    let sandbox = Sandbox::new();
    let marker = sandbox.dir().join("marker");
    let program = sandbox.dir().join("gpg");
    fs::write(
        &program,
        format!("#!/bin/sh\necho ran >> {}\nsleep 600\n", marker.display()),
    )
    .unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    let config = format!(
        "[commit]\n\tgpgsign = true\n\ttemplate = /nonexistent\n[tag]\n\tgpgsign = true\n[gpg]\n\tprogram = {}\n\
         [core]\n\teditor = /bin/false\n[init]\n\tdefaultBranch = main\n",
        program.display()
    );
    fs::write(sandbox.home().join(".gitconfig"), config).unwrap();
    let project = sandbox.project("p");
    project.sh("git init -q .; printf '0\n' > a");
    project.attach();
    let first = project.save();
    let started = Instant::now();
    for i in 1..=10 {
        project.write("a", format!("{i}\n"));
        project.save();
    }
    let took = started.elapsed();
    assert!(took < Duration::from_secs(15), "10 checkpoints took {took:?}");
    project.rewind(first);
    assert_eq!(project.read("a"), b"0\n");
    project.redo();
    assert_eq!(project.read("a"), b"10\n");
    assert!(!marker.exists(), "a signing program was run");
}

/// Refs of an odd kind or length broke other programs.
#[test]
fn b34_refs_are_short_and_name_commits() {
    let sandbox = Sandbox::new();
    let long = "n".repeat(150_usize.saturating_sub(sandbox.dir().as_os_str().len() + 6));
    let project = sandbox.project(&long);
    assert!(project.path.as_os_str().len() >= 149);
    committed(&project);
    let refs = project.sh("git for-each-ref").text();
    project.attach();
    project.json(&["session", "start", "a-session-name-of-32-characters-"]);
    for i in 0..100 {
        project.write("a", format!("{i}\n"));
        project.save();
    }
    project.rewind(1);
    assert_eq!(project.sh("git for-each-ref").text(), refs);
    let ours = project.store_git("for-each-ref --format='%(objecttype) %(refname)'");
    assert!(ours.lines().count() > 100, "{ours}");
    for line in ours.lines() {
        let (kind, name) = line.split_once(' ').unwrap();
        assert_eq!(kind, "commit", "{line}");
        assert!(name.len() <= 120, "{} bytes: {name}", name.len());
    }
    project.fsck();

    let store = project.store();
    let count = |what: &str| {
        let script = format!("git --git-dir='{}' for-each-ref | wc -l", store.display());
        let text = sandbox
            .sh(
                sandbox.dir(),
                &format!("[ ! -d '{}' ] && echo 0 || {script}", store.display()),
            )
            .text();
        text.trim()
            .parse::<u64>()
            .unwrap_or_else(|e| panic!("{what}: {e}"))
    };
    let before = count("attached");
    project.json(&["detach", "-y"]);
    project.write("a", "after detach\n");
    project.sh("sync; cat a");
    assert_eq!(
        count("detached"),
        before,
        "detach keeps what is there, and nothing comes"
    );
    project.json(&["detach", "--forget", "-y"]);
    assert_eq!(count("forgotten"), 0, "--forget leaves none");
}

/// `core.fsmonitor=true` in the global config: hundreds of stray daemons. And: a socket path too long.
#[test]
fn x07_no_fsmonitor_and_long_socket_paths_work() {
    let sandbox = Sandbox::new();
    let marker = sandbox.dir().join("marker");
    let hook = sandbox.dir().join("fsmonitor");
    fs::write(
        &hook,
        format!("#!/bin/sh\necho ran >> {}\nexit 1\n", marker.display()),
    )
    .unwrap();
    fs::set_permissions(&hook, Permissions::from_mode(0o755)).unwrap();
    let project = sandbox.project("p");
    committed(&project);
    project.sh(
        "printf 'tracked\n' > .gitignore; printf 'x\n' > tracked; git add -f tracked; git commit -qm two",
    );
    sandbox.sh(
        sandbox.dir(),
        &format!("git config --global core.fsmonitor '{}'", hook.display()),
    );
    project.attach();
    for i in 0..50 {
        project.write("a", format!("{i}\n"));
        project.save();
    }
    assert!(!marker.exists(), "the user's fsmonitor was run");
}

#[test]
fn x07_a_socket_path_of_any_length_works() {
    let sandbox = Sandbox::new();
    let deep = sandbox.dir().join("run").join("r".repeat(120));
    fs::create_dir(&deep).unwrap();
    fs::set_permissions(&deep, Permissions::from_mode(0o700)).unwrap();
    let sandbox = sandbox.with_env("XDG_RUNTIME_DIR", &deep);
    let project = sandbox.project("p");
    project.write("a", "v1\n");
    project.attach();
    let status = project.json(&["daemon", "status"]);
    assert!(
        status["socket"]
            .as_str()
            .unwrap()
            .starts_with(deep.to_str().unwrap()),
        "{status}"
    );
    assert!(status["socket"].as_str().unwrap().len() > 108, "{status}");
    assert_eq!(project.stepback(&["show", "latest:a"]).exits(0).text(), "v1\n");
}
