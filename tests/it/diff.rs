//! Patches that git takes.

use std::path::{Path, PathBuf};

use stepback_tests::{Project, Sandbox, Snapshot};

use crate::support::status_of;

const OLD: &str = r#"
mkdir -p d/deep
seq 1 40 > text
printf 'no newline' > bare
printf 'x\n' > gets-bare
printf 'gone\n' > d/deep/gone; printf 'stays\n' > d/stays
printf 'mode\n' > mode
printf 'plain\n' > 'odd name with "quotes" and	tab'
printf 'latin\n' > "$(printf 'na\303\257ve-\377')"
printf 'star\n' > '*'
printf -- 'dash\n' > ./-dash
printf 'newline\n' > 'new
line'
ln -s text link
: > empty
printf 'a\r\nb\r\n' > crlf
"#;

const NEW: &str = r#"
sed -i -e 's/^7$/seven/' -e '30d' text; printf '41\n' >> text
printf 'still no newline' > bare
printf 'x' > gets-bare
rm -r d/deep
chmod +x mode
printf 'other\n' > 'odd name with "quotes" and	tab'
printf 'other\n' > "$(printf 'na\303\257ve-\377')"
rm '*'; printf 'other\n' > ./-dash; printf 'other\n' > 'new
line'
rm link; ln -s elsewhere link
printf 'filled\n' > empty; : > new-empty
printf 'a\r\nc\r\n' > crlf
mkdir -p fresh/er; printf 'new\n' > fresh/er/f; printf '#!/bin/sh\n' > script; chmod 755 script
"#;

/// Only forth: `git apply -R` itself goes wrong with a path that changes its type.
const TYPE_OLD: &str = r"ln -s text becomes-file; printf 'file\n' > becomes-link";
const TYPE_NEW: &str = r"rm *; printf 'a file now\n' > becomes-file; ln -s text becomes-link";

const BINARY_OLD: &str = r"printf '\377\376\000\200PNG\n' > b.bin; printf 'gone\000' > gone.bin";
const BINARY_NEW: &str =
    r"printf '\377\376\000\201PNG!\n' > b.bin; rm gone.bin; printf 'new\000\001' > new.bin";

/// A copy of `base` with a patch applied.
fn applied(sandbox: &Sandbox, patch: &Path, base: &Path, options: &str, name: &str) -> Snapshot {
    let work = sandbox.dir().join("work");
    let copy = work.join(name);
    sandbox.sh(&work, &format!("cp -a '{}' '{name}'", base.display()));
    sandbox.sh(
        &copy,
        &format!("git apply --whitespace=nowarn {options} '{}'", patch.display()),
    );
    Snapshot::of(&copy)
}

/// Applies a patch to a copy of `from`, and its reverse to a copy of `to`; both must give the other one.
fn applies_both_ways(sandbox: &Sandbox, patch: &Path, from: &Path, to: &Path) {
    let forth = applied(sandbox, patch, from, "", "forth");
    Snapshot::of(to).same(&forth, "after git apply");
    let back = applied(sandbox, patch, to, "-R", "back");
    Snapshot::of(from).same(&back, "after git apply -R");
}

/// A project with two states: its checkpoints' numbers, and copies of the trees.
fn states(project: &Project<'_>, old: &str, new: &str) -> (u64, u64, PathBuf, PathBuf) {
    let copy = |name: &str| {
        project.sh(&format!("cp -a . ../{name}"));
        project.path.with_file_name(name)
    };
    project.sh(old);
    project.attach();
    let first = project.save();
    let from = copy("from");
    project.sh(new);
    let second = project.save();
    (first, second, from, copy("to"))
}

#[test]
fn git_apply_takes_a_diff_of_text_both_ways() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let (first, second, from, to) = states(&project, OLD, NEW);
    let patch = sandbox.dir().join("patch");
    let said = project
        .stepback(&["diff", &first.to_string(), &second.to_string()])
        .exits(0);
    std::fs::write(&patch, &said.stdout).unwrap();
    assert!(!said.text().contains('\x1b'), "no colour in a pipe");
    applies_both_ways(&sandbox, &patch, &from, &to);
}

#[test]
fn git_apply_takes_a_change_of_type() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let (_, second, from, to) = states(&project, TYPE_OLD, TYPE_NEW);
    let patch = sandbox.dir().join("patch");
    std::fs::write(
        &patch,
        project.stepback(&["diff", &second.to_string()]).exits(0).stdout,
    )
    .unwrap();
    Snapshot::of(&to).same(&applied(&sandbox, &patch, &from, "", "forth"), "after git apply");
    let files = project.json(&["diff", &second.to_string()])["files"].clone();
    assert_eq!(status_of(&files, "becomes-file").as_deref(), Some("T"), "{files}");
}

#[test]
fn git_apply_takes_an_exported_patch_with_binaries_both_ways() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let old = format!("{OLD}\n{BINARY_OLD}");
    let (_, second, from, to) = states(&project, &old, &format!("{NEW}\n{BINARY_NEW}"));
    let patch = sandbox.dir().join("exported");
    let second = second.to_string();
    let answer = project.json(&["export", &second, "--patch", patch.to_str().unwrap()]);
    assert_eq!(answer["id"].to_string(), second);
    applies_both_ways(&sandbox, &patch, &from, &to);
    let piped = project.stepback(&["export", &second, "--patch", "-"]).exits(0);
    assert_eq!(piped.stdout, std::fs::read(&patch).unwrap());
}

#[test]
fn binary_files_are_named_in_a_diff() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let (first, second, ..) = states(&project, BINARY_OLD, BINARY_NEW);
    let said = project
        .stepback(&["diff", &first.to_string(), &second.to_string()])
        .exits(0)
        .text();
    assert!(said.contains("Binary files a/b.bin and b/b.bin differ"), "{said}");
    let files = project.json(&["diff", &first.to_string(), &second.to_string()])["files"].clone();
    let binary = files
        .as_array()
        .unwrap()
        .iter()
        .find(|f| f["path"] == "b.bin")
        .unwrap()
        .clone();
    assert_eq!(
        (&binary["binary"], &binary["status"]),
        (&true.into(), &"M".into())
    );
}

#[test]
fn a_tar_holds_the_whole_tree() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let (first, _, from, _) = states(&project, &format!("{OLD}\n{BINARY_OLD}\nchmod 600 mode"), NEW);
    let tar = sandbox.dir().join("tree.tar");
    project
        .stepback(&["export", &first.to_string(), "--tar", tar.to_str().unwrap()])
        .exits(0);
    let out = sandbox.project("unpacked");
    out.sh(&format!("tar -xpf '{}'", tar.display()));
    Snapshot::of(&from).same(&out.tree(), "in the archive");
}

#[test]
fn each_form_names_its_two_sides() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("printf '1\n2\n3\n' > a; printf 'b\n' > b");
    let first = project.attach();
    project.sh("printf '1\ntwo\n3\n4\n' > a");
    let second = project.save();
    project.sh("rm b; printf 'c\n' > c");

    let of_base = project.json(&["diff", &second.to_string()]);
    assert_eq!(
        (&of_base["from"], &of_base["to"]),
        (&first.into(), &second.into())
    );
    let file = &of_base["files"][0];
    assert_eq!(
        *file,
        serde_json::json!({
            "path": "a", "status": "M", "old_mode": "100644", "new_mode": "100644",
            "insertions": 2, "deletions": 1, "binary": false
        })
    );
    let position = project.json(&["diff"]);
    assert_eq!(
        (&position["from"], &position["to"]),
        (&second.into(), &"tree".into())
    );
    assert_eq!(status_of(&position["files"], "b").as_deref(), Some("D"));
    assert_eq!(status_of(&position["files"], "c").as_deref(), Some("A"));
    let tree = project.json(&["diff", &first.to_string(), "-w"]);
    assert_eq!((&tree["from"], &tree["to"]), (&first.into(), &"tree".into()));
    assert_eq!(tree["files"].as_array().unwrap().len(), 3);
    let of_first = project.json(&["diff", &first.to_string()]);
    assert_eq!(
        (&of_first["from"], &of_first["to"]),
        (&serde_json::Value::Null, &first.into())
    );

    assert_eq!(
        project.stepback(&["diff", "--name-status"]).exits(0).text(),
        "D\tb\nA\tc\n"
    );
    let stat = project
        .stepback(&["diff", &second.to_string(), "--stat"])
        .exits(0)
        .text();
    assert!(
        stat.contains(" a |") && stat.contains('+') && stat.contains('-'),
        "{stat}"
    );
    let only = project.json(&["diff", &first.to_string(), "-w", "--", "c"]);
    assert_eq!(crate::support::paths(&only["files"]), ["c"]);
    assert_eq!(
        project
            .stepback(&["diff", &second.to_string(), "--", "b"])
            .exits(0)
            .text(),
        ""
    );
}

#[test]
fn a_mode_alone_is_shown() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("printf 'x\n' > x.sh; chmod 750 x.sh");
    project.attach();
    project.sh("chmod -x x.sh");
    let files = project.json(&["diff"])["files"].clone();
    assert_eq!(
        (&files[0]["old_mode"], &files[0]["new_mode"]),
        (&"100750".into(), &"100640".into()),
        "{files}"
    );
    let said = project.stepback(&["diff"]).exits(0).text();
    assert!(said.contains("old mode") && said.contains("new mode"), "{said}");
}

#[test]
fn colour_and_pager_are_as_asked() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.write("a", "v1\n");
    project.attach();
    project.write("a", "v2\n");
    let coloured = project.stepback(&["diff", "--color", "always"]).exits(0).text();
    assert!(coloured.contains('\x1b'), "{coloured}");
    let never = project
        .stepback_env(&["diff"], &[("NO_COLOR", "1")])
        .exits(0)
        .text();
    assert!(!never.contains('\x1b'), "{never}");
    // A reader that goes away is no error to speak of.
    let program = sandbox.program("stepback");
    let said = project.sh(&format!("'{}' diff | true; echo done", program.display()));
    assert_eq!((said.text().as_str(), said.stderr.as_str()), ("done\n", ""));
}
