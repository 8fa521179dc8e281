//! The commands in agents' hooks: which are ours, and which have our program in them by somebody's hand.

/// What stands between words of a shell's.
const BREAKS: &str = " \t\n;&|<>(){}`$\"'";

/// Whether a command is just our hook for this agent, wherever the program was: one word that ends in `stepback`, `hook`
/// and the agent. Anything around it is somebody's work.
pub fn is_ours(command: &str, agent: &str) -> bool {
    let Some(program) = command
        .strip_suffix(agent)
        .and_then(|rest| rest.strip_suffix(" hook "))
    else {
        return false;
    };
    one_word(program).is_some_and(|path| path.rsplit('/').next() == Some("stepback"))
}

/// Whether a command that isn't ours has our hook for this agent in it.
pub fn is_by_hand(command: &str, agent: &str) -> bool {
    let words: Vec<&str> = command
        .split(|c| BREAKS.contains(c))
        .filter(|word| !word.is_empty())
        .collect();
    let calls =
        |at: &[&str]| at[0].rsplit('/').next() == Some("stepback") && at[1] == "hook" && at[2] == agent;
    !is_ours(command, agent) && words.windows(3).any(calls)
}

/// What a shell makes of `text`, if that is a single word, in which nothing is expanded.
fn one_word(text: &str) -> Option<String> {
    let mut word = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\'' => loop {
                match chars.next()? {
                    '\'' => break,
                    c => word.push(c),
                }
            },
            '"' => loop {
                match chars.next()? {
                    '"' => break,
                    '\\' => word.push(chars.next()?),
                    '$' | '`' => return None,
                    c => word.push(c),
                }
            },
            '\\' => word.push(chars.next()?),
            c if c.is_whitespace() || BREAKS.contains(c) || "~*?[]!#".contains(c) => return None,
            c => word.push(c),
        }
    }
    Some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_is_the_whole_command_and_nothing_else() {
        for command in [
            "/usr/bin/stepback hook codex",
            "'/old place/stepback' hook codex",
            "\"/old place/stepback\" hook codex",
            r"'/it'\''s/stepback' hook codex",
            "stepback hook codex",
        ] {
            assert!(is_ours(command, "codex"), "{command}");
            assert!(!is_by_hand(command, "codex"), "{command}");
            assert!(
                !is_ours(command, "gemini") && !is_by_hand(command, "gemini"),
                "{command}"
            );
        }
    }

    #[test]
    fn what_somebody_made_of_it_is_theirs() {
        for command in [
            "timeout 5 /usr/local/bin/stepback hook codex && notify-send done",
            "~/bin/log.sh /usr/local/bin/stepback hook codex",
            "~/bin/stepback hook codex",
            "/usr/bin/stepback hook codex # mine",
            "/usr/bin/stepback hook codex --more",
            "/usr/bin/stepback hook codex; true",
            "A=1 /usr/bin/stepback hook codex",
            "sh -c '/usr/bin/stepback hook codex'",
            "$HOME/bin/stepback hook codex",
            "/usr/bin/stepback  hook  codex",
        ] {
            assert!(!is_ours(command, "codex"), "{command}");
            assert!(is_by_hand(command, "codex"), "{command}");
        }
        for command in [
            "say done",
            "mystepback hook codex",
            "/stepback/hook codex",
            "stepback hook",
        ] {
            assert!(
                !is_ours(command, "codex") && !is_by_hand(command, "codex"),
                "{command}"
            );
        }
    }
}
