//! Whether a shell command is known to leave files alone. Before any other one the present is saved while the agent waits.
//!
//! It isn't asked whether a command destroys: scripts, substitutions, aliases, other languages and a hundred programs can,
//! and each that is overlooked costs somebody's work. A save with nothing pending costs a few milliseconds. So only what is
//! simple and known to look is let through, and this needs to read no more of the shell than that.

/// Whether `script`, a line for a POSIX shell, surely changes no file: plain commands that only look, and no redirection
/// into a file.
pub fn is_harmless(script: &str) -> bool {
    commands(script).is_some_and(|commands| commands.iter().all(|words| only_looks(words)))
}

/// Likewise, of a command that is already taken apart into words. A shell's own script is looked into.
pub fn are_harmless(words: &[&str]) -> bool {
    match words {
        [shell, option, script] if is_shell(shell) && matches!(*option, "-c" | "-lc" | "-cl") => {
            is_harmless(script)
        }
        _ => {
            let words: Vec<Word> = words.iter().map(|text| Word::plain(text)).collect();
            !words.is_empty() && only_looks(&words)
        }
    }
}

fn is_shell(program: &str) -> bool {
    matches!(usual_name(program), Some("sh" | "bash" | "zsh" | "dash"))
}

/// A word of a command.
#[derive(Debug, Default, PartialEq, Eq)]
struct Word {
    text: String,
    /// The shell may make another word, or several, of it.
    expands: bool,
}

impl Word {
    fn plain(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            expands: false,
        }
    }
}

/// Programs that write no file, whatever their arguments are.
const LOOKERS: &str = ": [ basename cat cd cksum cmp comm cut df diff dirname du echo egrep expr false fgrep fold grep head id jq ls \
    md5sum nl nproc od paste printf ps pwd readlink realpath seq sha1sum sha256sum sleep stat tail test tr true \
    uname wc which whoami";

/// Of git: what only looks.
const GIT_LOOKERS: &str = "blame cat-file describe diff log ls-files ls-tree merge-base name-rev rev-list rev-parse shortlog show status";

fn only_looks(words: &[Word]) -> bool {
    let Some((program, arguments)) = words.split_first() else {
        return true;
    };
    let Some(name) = usual_name(&program.text).filter(|_| !program.expands) else {
        return false;
    };
    if LOOKERS.split(' ').any(|known| known == name) {
        return true;
    }
    // From here on an option may make a difference: what the shell makes of its words has to be known.
    if arguments.iter().any(|word| word.expands) {
        return false;
    }
    let arguments: Vec<&str> = arguments.iter().map(|word| word.text.as_str()).collect();
    let none_begins = |with: &[&str]| {
        !arguments
            .iter()
            .any(|word| with.iter().any(|start| word.starts_with(start)))
    };
    match name {
        "git" => git_only_looks(&arguments),
        "find" => none_begins(&["-exec", "-ok", "-delete", "-fprint", "-fls"]),
        "rg" => none_begins(&["--pre", "--hostname-bin"]),
        // -o, also among others, writes; a long option may be an abbreviation.
        "sort" | "tree" => !arguments
            .iter()
            .any(|word| word.starts_with("--") || word.starts_with('-') && word.contains('o')),
        "sed" => matches!(arguments.as_slice(), ["-n", script, files @ ..]
            if prints_lines(script) && files.iter().all(|file| !file.starts_with('-'))),
        "command" | "type" => matches!(arguments.first(), Some(&("-v" | "-V"))) || name == "type",
        // Without the clock to be set.
        "date" => arguments.iter().all(|word| word.starts_with('+')),
        _ => arguments == ["--version"],
    }
}

/// A program by its name alone, or where the system has it: one that lies elsewhere may be anything.
fn usual_name(program: &str) -> Option<&str> {
    let name = ["/usr/bin/", "/bin/"]
        .iter()
        .find_map(|dir| program.strip_prefix(dir))
        .unwrap_or(program);
    (!name.contains('/')).then_some(name)
}

/// `1,20p` and the like.
fn prints_lines(script: &str) -> bool {
    script
        .strip_suffix('p')
        .is_some_and(|lines| lines.bytes().all(|b| b.is_ascii_digit() || b",$".contains(&b)))
}

fn git_only_looks(arguments: &[&str]) -> bool {
    let mut rest = arguments;
    loop {
        rest = match rest {
            ["-C", _, rest @ ..] | ["--no-pager" | "-P", rest @ ..] => rest,
            _ => break,
        };
    }
    let Some((verb, rest)) = rest.split_first() else {
        return false;
    };
    // `--output FILE`, as short as git takes it, and programs that the user's settings name.
    let writes =
        |word: &&str| word.starts_with("--ou") || word.starts_with("--ext") || word.starts_with("--textc");
    GIT_LOOKERS.split(' ').any(|known| known == *verb) && !rest.iter().any(writes)
}

/// The commands of a script as their words, without redirections that write nothing. `None`: it has something in it that
/// isn't read here, or writes.
fn commands(script: &str) -> Option<Vec<Vec<Word>>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<Word> = None;
    let mut chars = script.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next()? {
                        '\'' => break,
                        c => word.text.push(c),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next()? {
                        '"' => break,
                        '`' => return None,
                        '$' if matches!(chars.peek(), Some('(' | '{' | '[')) => return None,
                        // Split or not, it may be anything.
                        '$' => word.expands = true,
                        '\\' => word.text.extend([chars.next()?]),
                        c => word.text.push(c),
                    }
                }
            }
            '\\' => match chars.next()? {
                '\n' => {}
                c => word.get_or_insert_default().text.push(c),
            },
            '$' if chars
                .peek()
                .is_some_and(|c| !c.is_ascii_alphanumeric() && *c != '_') =>
            {
                return None;
            }
            '$' | '*' | '?' | '[' | ']' | '~' | '{' | '}' => {
                let word = word.get_or_insert_default();
                word.expands |= match c {
                    // Also a program.
                    '[' => !word.text.is_empty() || chars.peek() != Some(&' '),
                    '~' => word.text.is_empty(),
                    _ => true,
                };
                word.text.push(c);
            }
            '`' | '(' | ')' | '!' => return None,
            '#' if word.is_none() => return None,
            '>' => {
                // A number right before it says what is redirected.
                let number = |word: &Word| !word.expands && word.text.bytes().all(|b| b.is_ascii_digit());
                word.take_if(|word| number(word));
                writes_nowhere(&mut chars).then_some(())?;
            }
            '<' => {
                if matches!(chars.peek(), Some('<' | '>' | '(' | '&')) {
                    return None;
                }
                commands.last_mut()?.extend(word.take());
            }
            '&' if chars.peek() == Some(&'>') => {
                chars.next();
                writes_nowhere(&mut chars).then_some(())?;
            }
            ';' | '&' | '|' | '\n' => {
                commands.last_mut()?.extend(word.take());
                commands.push(Vec::new());
            }
            ' ' | '\t' => commands.last_mut()?.extend(word.take()),
            c => word.get_or_insert_default().text.push(c),
        }
    }
    commands.last_mut()?.extend(word.take());
    Some(commands)
}

/// Reads the target of a redirection, behind its `>`: whether that is no file.
fn writes_nowhere(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> bool {
    let mut target = String::new();
    while let Some(c) = chars.peek().copied() {
        match c {
            ' ' if target.is_empty() => {}
            '&' if target.is_empty() => target.push(c),
            c if c.is_ascii_alphanumeric() || c == '/' || c == '-' => target.push(c),
            _ => break,
        }
        chars.next();
    }
    let ended = chars
        .peek()
        .is_none_or(|c| matches!(c, ' ' | '\t' | '\n' | ';' | '|' | '&'));
    ended
        && matches!(
            target.as_str(),
            "/dev/null" | "&1" | "&2" | "/dev/stderr" | "/dev/stdout"
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_looks_is_let_through() {
        for command in [
            "",
            "ls -la",
            "/bin/ls src | head -5",
            "cd a && ls *.rs; pwd",
            "echo rm -rf x",
            "echo 'rm -rf x; $(date)' \"and $HOME\"",
            "grep -rn \"rm -rf\" . 2>/dev/null | wc -l",
            "cat a 2>&1 | grep -v '^#' >/dev/null",
            "cat < a",
            "[ -f a ] && echo yes",
            "find . -name '*.rs' -type f",
            "sed -n '1,20p' src/main.rs",
            "sed -n 7p a",
            "git status",
            "git -C sub --no-pager log --oneline -5",
            "git diff HEAD~1 -- a",
            "git show HEAD:a | head",
            "rg -n foo src",
            "sort -rn a | head",
            "cargo --version",
            "command -v node",
        ] {
            assert!(is_harmless(command), "{command}");
        }
    }

    #[test]
    fn whatever_else_there_is_has_the_present_saved() {
        for command in [
            // What destroys, in any dress.
            "rm a",
            "/bin/rm -r x",
            "./ls",
            "r\\m x",
            "'rm' x",
            "ls; rm -rf x",
            "ls\nrm x",
            "ls\u{a0}-l",
            "ls & rm x",
            "ls || rm x",
            "A=1 rm x",
            "{ rm x; }",
            "(rm x)",
            "! rm x",
            "if true; then rm x; fi",
            "for f in *; do rm \"$f\"; done",
            "while read f; do rm \"$f\"; done < list",
            "case x in a) rm x;; esac",
            "function f { rm x; }; f",
            "trap \"rm x\" EXIT",
            "coproc rm x",
            "2>/dev/null rm x",
            "sudo -iu root rm x",
            "timeout --signal KILL 5 rm x",
            "env -S 'rm x'",
            "find . -type f | xargs rm",
            "find . -exec true {} \\; -exec rm {} \\;",
            "find . -okdir rm {} \\;",
            "find . -name x -delete",
            "find . $WHAT",
            "echo 'rm x' | sh",
            "bash -c 'ls'",
            "eval ls",
            "python3 -c \"import shutil; shutil.rmtree('src')\"",
            "npx rimraf dist",
            "make clean",
            "cargo build",
            // After and in a substitution.
            "cd \"$(git rev-parse --show-toplevel)\" && git clean -fdx",
            "echo \"Today $(date)\"; rm -rf src",
            "foo=\"$(cd x; ls)\"; git reset --hard",
            "echo \"a `rm x`\"",
            "echo $(rm x)",
            "cat <(rm x)",
            "echo ${x:-$(rm x)}",
            "echo $'a\\'; rm x'",
            "cat <<EOF\nI don't know\nEOF\nrm -rf src",
            "cat <<<x",
            "# ls",
            // What writes a file.
            "> a",
            ": > a",
            "ls > a",
            "ls >> a",
            "ls >| a",
            "ls &> a",
            "ls >&a",
            "ls > /dev/null/../../a",
            "ls >/dev/null\"x\"",
            "ls 2>a",
            "cat <> a",
            "tee a",
            "sed -i d a",
            "sed -n 'w a' b",
            "sort -o a a",
            "sort -uo a a",
            "sort --outp=a a",
            // git.
            "git reset --har",
            "git checkout main",
            "git stash",
            "git commit -m x",
            "git -c alias.x='!rm a' x",
            "git submodule foreach 'git reset --hard'",
            "git log --outpu=a",
            "git diff $OPTIONS",
            "git",
            // What can't be read.
            "'",
            "\"",
            "\\",
            "$(",
            "ls 'a",
        ] {
            assert!(!is_harmless(command), "{command}");
        }
    }

    #[test]
    fn a_list_of_words_is_one_command_or_a_shells_script() {
        assert!(are_harmless(&["ls", "*; rm x"]));
        assert!(are_harmless(&["bash", "-lc", "ls -l | head"]));
        assert!(are_harmless(&["/bin/sh", "-c", "ls"]));
        assert!(!are_harmless(&["bash", "-lc", "ls; rm x"]));
        assert!(!are_harmless(&["bash", "script"]));
        assert!(!are_harmless(&["rm", "x"]));
        assert!(!are_harmless(&["./bash", "-c", "ls"]));
        assert!(!are_harmless(&[]));
    }
}
