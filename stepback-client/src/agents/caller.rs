//! Which process called us: an agent runs its hooks through a shell, or directly.

/// Shells on the way up.
const SHELLS: [&str; 8] = ["sh", "bash", "dash", "zsh", "ksh", "fish", "ash", "busybox"];
/// So far up is looked.
const UP_MAX: usize = 8;

/// The nearest process above us that is no shell; `None` where `/proc` doesn't say.
pub fn pid() -> Option<u32> {
    let mut at = u32::try_from(nix::unistd::getppid().as_raw()).ok()?;
    for _ in 0..UP_MAX {
        let (name, parent) = parse(&std::fs::read_to_string(format!("/proc/{at}/stat")).ok()?)?;
        if !SHELLS.contains(&name.as_str()) {
            return (at > 1).then_some(at);
        }
        at = parent;
    }
    None
}

/// Name and parent of a process.
fn parse(stat: &str) -> Option<(String, u32)> {
    // The name stands in parentheses and may hold anything, parentheses too.
    let (before, after) = stat.rsplit_once(')')?;
    let name = before.split_once('(')?.1.to_owned();
    let parent = after.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some((name, parent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_and_parent_are_found_whatever_the_name_holds() {
        assert_eq!(parse("7 (a) b) S 12 7 7"), Some(("a) b".into(), 12)));
        assert_eq!(parse("7 (sh) S 1 7"), Some(("sh".into(), 1)));
        assert_eq!(parse("garbage"), None);
    }

    #[test]
    fn what_called_us_is_there() {
        assert!(pid().is_some());
    }
}
