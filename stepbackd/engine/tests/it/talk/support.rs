//! Agents' directories filled with what agents really wrote, in two turns.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use stepback_engine::conversation::{Mode, What};
use stepback_engine::engine::{Operation, Report, Select};

use crate::support::Sandbox;

/// When pretended processes began.
pub const BEGAN: u64 = 4321;

/// Both, files, conversations.
pub const BOTH: Mode = Mode {
    what: What::Both,
    fork: false,
};
pub const CONVERSATION: Mode = Mode {
    what: What::Conversation,
    fork: false,
};
pub const FORK: Mode = Mode {
    what: What::Conversation,
    fork: true,
};

/// A fixture, as if the agent had worked in `root`.
pub fn fixture(name: &str, root: &Path) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/fixtures/agents")
        .join(name);
    let text = fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    text.replace("@ROOT@", root.to_str().unwrap())
}

/// The schema of an agent's database, less the tables that SQLite makes itself.
pub fn schema(name: &str) -> String {
    let text = fixture(name, Path::new("/"));
    let own = |line: &&str| !line.starts_with("CREATE TABLE sqlite_");
    text.lines().filter(own).map(|line| format!("{line}\n")).collect()
}

/// The name that Claude Code and Qwen Code give the directory of a project.
pub fn slug(path: &Path) -> String {
    let text = path.to_str().unwrap();
    text.encode_utf16()
        .map(|u| match u8::try_from(u) {
            Ok(b) if b.is_ascii_alphanumeric() => char::from(b),
            _ => '-',
        })
        .collect()
}

/// Writes a file of an agent, as agents do: at the end of what is there if it only grew.
pub fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let there = fs::read(path).unwrap_or_default();
    if !there.is_empty() && text.as_bytes().starts_with(&there) {
        append(path, &text[there.len()..]);
    } else {
        fs::write(path, text).unwrap();
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

pub fn append(path: &Path, text: &str) {
    use std::io::Write;
    let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

/// Bytes, mode, time and inode of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    pub text: String,
    pub mode: u32,
    pub mtime: (i64, i64),
    pub ino: u64,
}

pub fn look(path: &Path) -> Look {
    let metadata = fs::symlink_metadata(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    Look {
        text: fs::read_to_string(path).unwrap(),
        mode: metadata.mode() & 0o7777,
        mtime: (metadata.mtime(), metadata.mtime_nsec()),
        ino: metadata.ino(),
    }
}

impl Sandbox {
    pub fn home(&self) -> PathBuf {
        self.path().join("home")
    }

    /// A turn: the agent changes a file, and writes of it.
    pub fn turn(&mut self, file: &str, transcript: &Path, text: &str) -> u64 {
        self.write("hello.txt", file);
        write(transcript, text);
        self.capture().id
    }

    pub fn rewind_as(&mut self, n: u64, mode: Mode) -> Report {
        let operation = Operation::Rewind(Some(Select::Number(n)));
        self.on(|engine, cx| engine.execute_as(&operation, mode, None, cx))
            .unwrap()
    }

    pub fn redo(&mut self) -> Report {
        self.execute(&Operation::Redo).unwrap()
    }

    /// A process of this program and arguments that works in `cwd`.
    pub fn pretend_process(&self, pid: u32, exe: &str, arguments: &[&str], cwd: &Path) {
        let dir = self.path().join("processes").join(pid.to_string());
        fs::create_dir_all(dir.join("fd")).unwrap();
        std::os::unix::fs::symlink(cwd, dir.join("cwd")).unwrap();
        std::os::unix::fs::symlink(exe, dir.join("exe")).unwrap();
        fs::write(dir.join("cmdline"), arguments.join("\0") + "\0").unwrap();
        // The 22nd field is when it began.
        let stat = format!("{pid} (x) S 1{} {BEGAN} 0", " 0".repeat(17));
        fs::write(dir.join("stat"), stat).unwrap();
    }

    /// It ends.
    pub fn end_process(&self, pid: u32) {
        fs::remove_dir_all(self.path().join("processes").join(pid.to_string())).unwrap();
    }
}

/// What became of each conversation: agent, session, action.
pub fn actions(report: &Report) -> Vec<(&str, &str, &str)> {
    report
        .conversation
        .iter()
        .map(|o| (o.agent.name(), o.session.as_str(), o.action))
        .collect()
}
