//! The user's git in the middle of something: not a byte, inode or time below `.git` changes.

use stepback_tests::{Project, Sandbox};

/// Save, an agent's edits, save, rewind, redo, rewind, and a rewind that is taken back by `restore`.
fn cycle(project: &Project<'_>, what: &str) {
    let status = || {
        project.sh("GIT_OPTIONAL_LOCKS=0 git status --porcelain=v2 --branch; git diff --cached; git ls-files -s -u").text()
    };
    let said = status();
    let (git, tree) = (project.git(), project.tree());
    project.attach();
    let first = project.save();
    git.same(&project.git(), &format!("after save, {what}"));
    project.sh(
        "printf 'agent\n' > a; printf 'agent\n' > agents; mkdir -p sub; printf 'agent\n' > sub/x; rm -f b",
    );
    let edited = project.tree();
    tree.differs(&edited, what);
    project.settle();
    let second = project.save();
    project.rewind(first);
    tree.same(&project.tree(), &format!("after rewind, {what}"));
    git.same(&project.git(), &format!("after rewind, {what}"));
    project.redo();
    edited.same(&project.tree(), &format!("after redo, {what}"));
    project.json(&["restore", &first.to_string(), "-p", ".", "-y"]);
    tree.same(&project.tree(), &format!("after restore, {what}"));
    project.rewind(second);
    project.rewind(first);
    git.same(&project.git(), &format!("at the end, {what}"));
    assert_eq!(status(), said, "at the end, {what}");
    project.json(&["detach", "--forget", "-y"]);
}

const COMMITS: &str = "git init -q .; printf '0\n' > a; printf 'b\n' > b; git add -A; git commit -qm zero
for i in 1 2 3 4 5 6; do printf \"$i\n\" > a; git commit -qam $i; done
git checkout -q -b side HEAD~3; printf 'side\n' > a; git commit -qam side; git checkout -q main
";

fn each(states: &[(&str, &str)]) {
    for (what, script) in states {
        let sandbox = Sandbox::new();
        let project = sandbox.project("p");
        project.sh(&format!("{COMMITS}{script}"));
        cycle(&project, what);
    }
}

#[test]
fn b29_merges_and_picks_that_stopped_stay_as_they_are() {
    each(&[
        (
            "merge",
            "git merge side > /dev/null 2>&1 && exit 1; git ls-files -u | grep -q .",
        ),
        (
            "merge, half resolved",
            "git merge side > /dev/null 2>&1 && exit 1; printf 'both\n' > a; git add a",
        ),
        (
            "merge --no-commit",
            "git merge -q --no-commit --no-ff -s ours side",
        ),
        (
            "cherry-pick",
            "git cherry-pick side > /dev/null 2>&1 && exit 1; git ls-files -u | grep -q .",
        ),
        (
            "revert",
            "git revert --no-edit HEAD~3 > /dev/null 2>&1 && exit 1; git ls-files -u | grep -q .",
        ),
        (
            "squash",
            "git merge --squash -q -s ours side; printf 'x\n' > x; git add x",
        ),
    ]);
}

#[test]
fn b29_rebases_and_mails_that_stopped_stay_as_they_are() {
    each(&[
        (
            "rebase",
            "git checkout -q side; git rebase main > /dev/null 2>&1 && exit 1; git ls-files -u | grep -q .",
        ),
        (
            "rebase --apply",
            "git checkout -q side; git rebase --apply main > /dev/null 2>&1 && exit 1; [ -d .git/rebase-apply ]",
        ),
        (
            "rebase --interactive, edit",
            "GIT_SEQUENCE_EDITOR='sed -i s/^pick/edit/' git rebase -qi HEAD~2 > /dev/null 2>&1; [ -d .git/rebase-merge ]",
        ),
        (
            "am",
            "git format-patch -q -1 --stdout side > ../mail; git am -q < ../mail > /dev/null 2>&1 && exit 1; [ -d .git/rebase-apply ]",
        ),
    ]);
}

#[test]
fn b29_bisect_stash_and_staged_states_stay_as_they_are() {
    each(&[
        (
            "bisect",
            "git bisect start -q HEAD HEAD~5 > /dev/null; [ -f .git/BISECT_LOG ]",
        ),
        ("stash", "printf 's\n' > a; git stash -q; printf 't\n' > a"),
        (
            "staged, deleted and renamed",
            "git mv b c; printf 'staged\n' > a; git add a; printf 'on top\n' > a; printf 'n\n' > n; git add n; rm n",
        ),
        (
            "intent to add",
            "printf 'n\n' > n; git add -N n; printf 'm\n' > m; git add m; git rm -q --cached b",
        ),
        (
            "no commit yet",
            "git checkout -q --orphan fresh; git rm -rq --cached .; git add a",
        ),
        ("detached", "git checkout -q --detach HEAD~2; printf 'x\n' > x"),
        ("index.lock left behind", ": > .git/index.lock"),
        ("no index", "rm .git/index"),
    ]);
}

/// Every setting that makes git see other bytes, modes, names or nothing at all: what is captured is what is on disk.
fn settings(all: &[&str]) {
    for setting in all {
        let sandbox = Sandbox::new();
        let project = sandbox.project("p");
        project.sh(&format!("{COMMITS}printf 'ign\n' > .gitignore; printf 't\n' > ign; git add -f ign .gitignore; git commit -qm ignored; {setting}"));
        cycle(&project, setting);
    }
}

#[test]
fn settings_of_bytes_and_modes_change_nothing() {
    settings(&[
        "git config core.autocrlf true",
        "git config core.eol crlf; git config core.safecrlf true",
        "git config core.fileMode false; chmod +x a",
        "git config core.symlinks false; ln -s a link",
        "git config core.ignoreCase true; printf 'A\n' > A",
        "git config core.sharedRepository 0666; chmod 664 a",
        // Touched, so that git looks at the bytes before as well as after: as long as a file's times are those of the index, what a
        // filter makes of it is no matter.
        "printf '* text=auto eol=crlf ident working-tree-encoding=UTF-16\n' > .git/info/attributes; touch a b",
        "touch a b; git config core.attributesFile \"$PWD/../attr\"; printf '* filter=x\n' > ../attr; git config filter.x.required true; git config filter.x.clean 'tr 0-9 a-j'; git config filter.x.smudge 'tr a-j 0-9'",
    ]);
}

#[test]
fn settings_of_the_index_change_nothing() {
    settings(&[
        "git config core.ignoreStat true",
        "git update-index --assume-unchanged a b",
        "git update-index --skip-worktree a b",
        "git config core.untrackedCache true; git update-index --untracked-cache; git status > /dev/null",
        "git config core.splitIndex true; git update-index --split-index",
        "git config index.version 4; git update-index --index-version 4",
        "git config feature.manyFiles true; git status > /dev/null",
        "git config index.sparse true; git sparse-checkout set --no-cone a",
        "git config core.checkStat minimal; git config core.trustctime false",
        "git config index.skipHash true; git update-index --force-write-index",
    ]);
}

#[test]
fn settings_of_what_git_runs_and_says_change_nothing() {
    settings(&[
        "git config gc.auto 1; git config gc.autoDetach false; git config maintenance.auto true",
        "git config status.showUntrackedFiles no; git config core.quotePath false",
        "git config core.pager /bin/false; git config color.ui always; git config core.editor /bin/false",
        "git config diff.external /bin/false; git config core.sshCommand /bin/false",
        "git config include.path /nonexistent; git config includeIf.gitdir:/.path /nonexistent",
        "git config core.logAllRefUpdates always; git config core.fsync all",
        "git config core.preloadIndex false; git config core.multiPackIndex false; git config pack.threads 1",
        "git config core.fsmonitor true; git config alias.ls-files '!false'",
    ]);
}
