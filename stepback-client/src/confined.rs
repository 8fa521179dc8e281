//! Are we in a sandbox, as agents put the commands that they run into one? A daemon that is started there would be held
//! by it for as long as it lives: it would see and write only what this one command may.

use std::fs;
use std::path::Path;

use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};

/// Programs that make a sandbox and stay in it as its first process.
const KEEPERS: &[&str] = &["bwrap", "firejail", "codex-linux-san"];

/// What holds us, if something does.
pub fn by(state: &Path) -> Option<&'static str> {
    let read = |file: &str| fs::read_to_string(Path::new("/proc").join(file)).ok();
    let status = Status {
        own: read("self/status"),
        first: read("1/status"),
        users: read("self/uid_map"),
    };
    status.by().or_else(|| read_only(state))
}

/// What the kernel says of us.
struct Status {
    own: Option<String>,
    /// Of the first process that we see.
    first: Option<String>,
    users: Option<String>,
}

impl Status {
    fn by(&self) -> Option<&'static str> {
        let own = self.own.as_deref()?;
        let first = self.first.as_deref();
        if KEEPERS
            .iter()
            .any(|keeper| first.and_then(|f| field(f, "Name")) == Some(keeper))
        {
            return Some("it has processes of its own");
        }
        // Landlock, seccomp filters and namespaces of an ordinary user all come with this bit, which never goes again.
        // Where everything has it (a container that was started so), it says nothing.
        let bit = "NoNewPrivs";
        if field(own, bit) == Some("1") && first.and_then(|f| field(f, bit)) != Some("1") {
            return Some("it can't gain privileges");
        }
        // A system, or a container of one, knows many users; a namespace that a user made for one command knows one.
        let known: u64 = self
            .users
            .as_deref()?
            .lines()
            .filter_map(|line| line.split_ascii_whitespace().nth(2)?.parse::<u64>().ok())
            .sum();
        (known == 1).then_some("it knows one user alone")
    }
}

fn field<'t>(status: &'t str, name: &str) -> Option<&'t str> {
    status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map(str::trim)
}

fn read_only(state: &Path) -> Option<&'static str> {
    let there = state.ancestors().find(|dir| dir.exists())?;
    (access(there, AccessFlags::W_OK) == Err(Errno::EROFS))
        .then_some("the state directory is read-only there")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: &str = "         0          0 4294967295\n";

    fn by(own: &str, first: &str, users: &str) -> Option<&'static str> {
        Status {
            own: Some(own.into()),
            first: Some(first.into()),
            users: Some(users.into()),
        }
        .by()
    }

    #[test]
    fn sandboxes_are_told_from_plain_logins_and_containers() {
        let free = "Name:\tsh\nNoNewPrivs:\t0\n";
        let held = "Name:\tsh\nNoNewPrivs:\t1\n";
        assert_eq!(by(free, "Name:\tsystemd\nNoNewPrivs:\t0\n", MANY), None);
        assert_eq!(by(held, held, MANY), None, "a container that is so as a whole");
        assert_eq!(by(free, free, "0 1000 1\n1 100000 65536\n"), None, "rootless");
        assert!(by(held, free, MANY).is_some());
        assert!(by(held, "Name:\tbwrap\nNoNewPrivs:\t1\n", MANY).is_some());
        assert!(by(free, free, "      1000       1000          1\n").is_some());
    }
}
