//! Rules that can't be read, and rules that come from everywhere: a failing one fails the capture and never widens it.

use stepback_tests::{Project, Sandbox};

use crate::support::{KEEP, V1, is};

/// An error of the ignore check counted as "nothing is ignored". Neighbours of the case: each file that rules come from,
/// broken in its own way.
#[test]
fn b14_a_broken_source_of_rules_fails_the_capture_and_names_itself() {
    let broken = [
        (
            "excludesFile that is a directory",
            "mkdir ../dir; git config core.excludesFile \"$PWD/../dir\"",
            "git config --unset core.excludesFile",
            "dir",
        ),
        (
            "info/exclude that is a directory",
            "mv .git/info/exclude ../exclude; mkdir .git/info/exclude",
            "rmdir .git/info/exclude; mv ../exclude .git/info/exclude",
            "exclude",
        ),
        (
            "config that is none",
            "cp .git/config ../config; printf '[core\n' >> .git/config",
            "cp ../config .git/config",
            "config",
        ),
        (
            "index that is none",
            "cp .git/index ../index; printf 'no index' > .git/index",
            "cp ../index .git/index",
            "index",
        ),
    ];
    for (what, breaks, mends, named) in broken {
        let sandbox = Sandbox::new();
        let project = sandbox.project("p");
        project.sh("git init -q .; printf 'secret\n' > .git/info/exclude; printf 's\n' > secret; printf '*.log\n' > .gitignore; printf 'l\n' > t.log
                    git add -f t.log .gitignore; git commit -qm one; printf 'v1\n' > a");
        project.attach();
        let before = project.ids();
        project.sh(&format!("{breaks}; printf 'v2\n' > a"));
        let said = project.stepback(&["save"]).exits(1);
        assert!(
            said.stderr.starts_with("stepback: ") && said.stderr.contains(named),
            "{what}: {said:#?}"
        );
        assert!(said.stderr.contains("hint: "), "{what}: {said:#?}");
        assert_eq!(project.ids(), before, "{what}");
        project.sh(mends);
        let id = project.save();
        assert_eq!(project.show(id, "a"), b"v2\n", "{what}");
        assert_eq!(project.show(id, "t.log"), b"l\n", "{what}");
        project.fails(&["show", &format!("{id}:secret")], 1, "no_such_path");
    }
}

#[test]
fn b14_an_ignore_file_that_cannot_be_read_fails_the_capture() {
    let Some(sandbox) = Sandbox::of_normal_user() else {
        return;
    };
    for file in [".gitignore", "sub/.gitignore", ".stepbackignore"] {
        let project = sandbox.project(&format!("p{}", file.replace(['/', '.'], "-")));
        project.sh(&format!("git init -q .; mkdir sub; printf 'secret\n' > {file}; printf 's\n' > sub/secret; printf 'v1\n' > a"));
        project.attach();
        let before = project.ids();
        project.sh(&format!("chmod 000 {file}; printf 'v2\n' > a"));
        let said = project.stepback(&["save"]).exits(1);
        assert!(said.stderr.contains(file), "{said:#?}");
        assert_eq!(project.ids(), before, "{file}");
        project.sh(&format!("chmod 644 {file}"));
        let id = project.save();
        project.fails(&["show", &format!("{id}:sub/secret")], 1, "no_such_path");
    }
}

/// The rule that protects a file may stand anywhere, and go with the rewind or not.
#[test]
fn b03_a_file_that_any_kind_of_rule_protects_now_is_not_removed() {
    for rule in [
        "printf '/cache/\n' > .gitignore",
        "printf 'k\n' > .git/info/exclude",
        "printf 'cache\n' > .stepbackignore",
        "printf 'cache/\n' > ../excludes; git config core.excludesFile \"$PWD/../excludes\"",
        "printf '**/k\n' > ../home/.config/git/ignore",
        "mkdir -p cache; printf 'k\n.gitignore\n' > cache/.gitignore",
    ] {
        let sandbox = Sandbox::new();
        std::fs::create_dir_all(sandbox.home().join(".config/git")).unwrap();
        let project = sandbox.project("p");
        project.sh("git init -q .; : > .gitignore; printf 'v1\n' > a; git add -A; git commit -qm one");
        project.attach();
        let first = project.save();
        let rule = rule.replace("../home/", &format!("{}/", sandbox.home().display()));
        project.sh(&format!(
            "{rule}; mkdir -p cache; printf 'KEEP\n' > cache/k; printf 'v2\n' > a"
        ));
        project.save();
        rewind_and_back(&project, first, &rule);
    }
}

fn rewind_and_back(project: &Project<'_>, first: u64, rule: &str) {
    let edited = project.tree();
    project.rewind(first);
    is(project, "a", V1);
    is(project, "cache/k", KEEP);
    project.redo();
    edited.same(&project.tree(), rule);
}
