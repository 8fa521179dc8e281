//! Whether a shell command may destroy work. Before such a one the present is saved while the agent waits, which costs some
//! milliseconds: so when in doubt, it may. This reads words as a shell would, roughly; it need not be a shell.

/// Shells in shells, and commands in commands: deeper ones are taken to destroy.
const DEPTH_MAX: usize = 8;

/// Whether `command`, a line or script for a POSIX shell, may destroy files that it is given.
pub fn may_destroy(command: &str) -> bool {
    may_destroy_at(command, 0)
}

fn may_destroy_at(command: &str, depth: usize) -> bool {
    depth > DEPTH_MAX
        || simple_commands(command)
            .iter()
            .any(|words| destroys(words, depth))
}

/// Programs that run the command which follows them, with their options that take a word.
const RUNNERS: [(&str, &[&str]); 15] = [
    ("sudo", &["-u", "-g", "-C", "-h", "-p"]),
    ("doas", &["-u", "-C"]),
    ("env", &["-u", "-C", "-S"]),
    ("time", &["-f", "-o"]),
    ("timeout", &["-s", "-k"]),
    ("nice", &["-n"]),
    ("ionice", &["-c", "-n"]),
    ("nohup", &[]),
    ("setsid", &[]),
    ("stdbuf", &["-i", "-o", "-e"]),
    ("command", &[]),
    ("builtin", &[]),
    ("exec", &["-a"]),
    ("busybox", &[]),
    ("xargs", &["-I", "-n", "-P", "-L", "-d", "-a", "-s", "-E"]),
];

const SHELLS: [&str; 8] = ["sh", "bash", "dash", "zsh", "ksh", "fish", "ash", "mksh"];

/// What a simple command, taken apart into words, does.
fn destroys(words: &[String], depth: usize) -> bool {
    if depth > DEPTH_MAX {
        return true;
    }
    let assignment = |word: &&String| {
        let name = word.split_once('=').map(|(name, _)| name);
        name.is_some_and(|name| {
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        })
    };
    // What may stand before a command in a compound one.
    let keyword = |word: &&String| {
        matches!(
            word.as_str(),
            "if" | "then" | "else" | "elif" | "while" | "until" | "do" | "!" | "{" | "time"
        )
    };
    let skipped = words
        .iter()
        .take_while(|word| assignment(word) || keyword(word))
        .count();
    let Some((program, arguments)) = words[skipped..].split_first() else {
        return false;
    };
    let program = program.rsplit('/').next().unwrap_or(program);
    let has = |wanted: &[&str]| arguments.iter().any(|word| wanted.contains(&word.as_str()));
    if let Some((_, with_word)) = RUNNERS.iter().find(|(name, _)| *name == program) {
        let rest = after_options(arguments, with_word, program == "timeout");
        return destroys(rest, depth + 1);
    }
    if SHELLS.contains(&program) {
        // Also a list of words that were put together with spaces: all of them are looked at.
        let is_command =
            |word: &String| word.starts_with('-') && !word.starts_with("--") && word.contains('c');
        let script = arguments
            .iter()
            .position(is_command)
            .map(|at| arguments[at + 1..].join(" "));
        return script.is_some_and(|script| may_destroy_at(&script, depth + 1));
    }
    match program {
        "rm" | "unlink" | "rmdir" | "shred" | "truncate" | "dd" | "mv" | "srm" | "wipe" | "trash" => true,
        "eval" => may_destroy_at(&arguments.join(" "), depth + 1),
        "rsync" => arguments
            .iter()
            .any(|word| word.starts_with("--del") || word == "--remove-source-files"),
        "find" | "fd" | "fdfind" => {
            let at = arguments.iter().position(|word| {
                matches!(
                    word.as_str(),
                    "-exec" | "-execdir" | "-ok" | "-x" | "-X" | "--exec" | "--exec-batch"
                )
            });
            has(&["-delete", "-fprint"]) || at.is_some_and(|at| destroys(&arguments[at + 1..], depth + 1))
        }
        "git" => git_destroys(arguments),
        "jj" => has(&["restore", "abandon", "undo"]),
        "hg" => has(&["revert", "purge", "strip"]) || has(&["update", "up"]) && has(&["-C", "--clean"]),
        "svn" => has(&["revert", "cleanup"]),
        // Of make, cargo, gradle, npm run and whatever else builds.
        _ => has(&["clean", "distclean", "mrproper", "clobber"]),
    }
}

/// The words after a program's own options (and, for `timeout`, the duration).
fn after_options<'a>(words: &'a [String], with_word: &[&str], one_more: bool) -> &'a [String] {
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let named = word
            .split_once('=')
            .is_some_and(|(name, _)| !name.starts_with('-'));
        if with_word.contains(&word.as_str()) {
            at += 2;
        } else if word.starts_with('-') || named {
            at += 1;
        } else {
            break;
        }
    }
    words.get(at + usize::from(one_more)..).unwrap_or_default()
}

fn git_destroys(arguments: &[String]) -> bool {
    let rest = after_options(
        arguments,
        &["-C", "-c", "--git-dir", "--work-tree", "--namespace"],
        false,
    );
    let Some((verb, rest)) = rest.split_first() else {
        return false;
    };
    let has = |wanted: &[&str]| rest.iter().any(|word| wanted.contains(&word.as_str()));
    match verb.as_str() {
        "clean" | "checkout-index" | "filter-branch" | "filter-repo" | "rm" | "mv" | "read-tree" => true,
        "reset" => has(&["--hard", "--merge", "--keep"]),
        // A new branch leaves the files as they are.
        "checkout" => has(&["-f", "--force", "--"]) || !has(&["-b", "-B", "--orphan"]),
        "restore" => has(&["-W", "--worktree"]) || !has(&["-S", "--staged"]),
        "switch" => has(&["-f", "--force", "--discard-changes", "-C"]),
        "stash" => !matches!(rest.first().map(String::as_str), Some("list" | "show" | "create")),
        "worktree" => has(&["remove"]),
        "submodule" => has(&["deinit", "update"]),
        "rebase" | "merge" | "cherry-pick" | "revert" | "am" => has(&["--abort", "--quit", "--skip"]),
        _ => false,
    }
}

/// The simple commands of a script as their words: quotes and escapes taken off, cut at operators, and at what begins or
/// ends a substitution or a subshell.
fn simple_commands(script: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut chars = script.chars().peekable();
    let mut in_double = false;
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('\n') | None => {}
                Some(c) => word.get_or_insert_default().push(c),
            },
            '\'' if !in_double => {
                let word = word.get_or_insert_default();
                word.extend(chars.by_ref().take_while(|c| *c != '\''));
            }
            '"' => {
                in_double = !in_double;
                word.get_or_insert_default();
            }
            // In double quotes, too.
            '`' => cut(&mut commands, &mut word),
            '$' if chars.peek() == Some(&'(') => {
                chars.next();
                cut(&mut commands, &mut word);
                // What is inside is read as its own command, and what follows it as another.
                in_double = false;
            }
            c if in_double => word.get_or_insert_default().push(c),
            '#' if word.is_none() => {
                chars.by_ref().take_while(|c| *c != '\n').for_each(drop);
                cut(&mut commands, &mut word);
            }
            ';' | '&' | '|' | '\n' | '(' | ')' => cut(&mut commands, &mut word),
            c if c.is_whitespace() => commands.last_mut().expect("never empty").extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    cut(&mut commands, &mut word);
    commands
}

fn cut(commands: &mut Vec<Vec<String>>, word: &mut Option<String>) {
    commands.last_mut().expect("never empty").extend(word.take());
    commands.push(Vec::new());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_destroy() {
        for command in [
            "rm -rf build",
            "rm a",
            "/bin/rm -r x",
            "sudo -u me rm -r x",
            "cd x && rm -rf .",
            "ls; rm -rf x",
            "A=1 rm x",
            "if true; then rm x; fi",
            "for f in *; do rm \"$f\"; done",
            "echo $(rm -rf x)",
            "echo \"a $(rm -rf x)\"",
            "echo `rm x`",
            "bash -c 'rm -rf x'",
            "bash -lc rm -rf x",
            "sh -ec \"cd a; rm -rf b\"",
            "find . -name '*.o' -delete",
            "find . -exec rm {} \\;",
            "find . -type f | xargs -n 1 rm",
            "timeout 5 rm x",
            "env -i A=b rm x",
            "git reset --hard",
            "git reset --hard HEAD~3",
            "git -C sub reset --hard",
            "git -c core.x=y clean -fdx",
            "git checkout -- .",
            "git checkout .",
            "git checkout main",
            "git restore src",
            "git restore --staged --worktree a",
            "git stash",
            "git stash pop",
            "git switch -f main",
            "git merge --abort",
            "git rm a",
            "truncate -s 0 log",
            "dd if=/dev/zero of=a",
            "mv a b",
            "rsync -a --delete a/ b/",
            "make clean",
            "cargo clean",
            "eval \"rm x\"",
            "r\\m x",
            "'rm' x",
            "true &&\nrm x",
            "(rm x)",
            "{ rm x; }",
        ] {
            assert!(may_destroy(command), "{command}");
        }
    }

    #[test]
    fn what_does_not() {
        for command in [
            "",
            "ls -la",
            "echo rm -rf x",
            "echo 'rm -rf x'",
            "grep -r rm .",
            "git status",
            "git reset HEAD a",
            "git checkout -b new",
            "git restore --staged a",
            "git stash list",
            "git switch main",
            "git commit -m 'rm; git reset --hard'",
            "cat a # rm -rf b",
            "find . -name x",
            "cargo build",
            "npm run build",
            "rsync -a a/ b/",
            "sed -i s/a/b/ c",
            "xargs -n 1 echo",
            "bash script.sh",
        ] {
            assert!(!may_destroy(command), "{command}");
        }
    }

    #[test]
    fn odd_text_is_no_panic_and_deep_nesting_ends() {
        for command in ["'", "\"", "\\", "$(", "`", "((((", "#", "a=\"", "rm'"] {
            may_destroy(command);
        }
        for word in ["bash -c ", "env ", "eval ", "find -exec "] {
            assert!(may_destroy(&word.repeat(1_000_000)), "{word}");
        }
    }
}
