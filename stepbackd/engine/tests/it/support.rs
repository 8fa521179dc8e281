//! A root, a state directory and an engine in a temporary directory; the time is a counter.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use stepback_engine::Result;
use stepback_engine::checkpoint::Trigger;
use stepback_engine::conversation::{Agent, Homes, Told};
use stepback_engine::engine::{
    AttachRequest, Captured, Context, Engine, Environment, Operation, Preview, Report, Scope, Select,
    Settings, Why,
};
use stepback_engine::oid::{ObjectKind, Oid};
use stepback_engine::progress::Progress;
use stepback_engine::rules::GitEnvironment;
use stepback_engine::time::Time;
use stepback_engine::tree::NoWatch;

/// What stands at a path: type letter, permission bits, and bytes or link target.
pub type Entry = (char, u32, Vec<u8>);

/// Everything below a directory but `.git`, by relative path.
pub type Picture = BTreeMap<Vec<u8>, Entry>;

pub struct Sandbox {
    dir: tempfile::TempDir,
    /// The state directory is in memory where that can be had: what a disk takes to sync isn't asked here.
    _state: Option<tempfile::TempDir>,
    pub engine: Option<Engine>,
    progress: Progress,
    /// What hooks told of processes.
    pub told: Told,
}

impl Sandbox {
    /// With an empty root, not attached yet.
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["root", "home", "processes"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let state = tempfile::tempdir_in("/dev/shm").ok();
        match &state {
            Some(memory) => std::os::unix::fs::symlink(memory.path(), dir.path().join("state")).unwrap(),
            None => fs::create_dir(dir.path().join("state")).unwrap(),
        }
        Self {
            dir,
            _state: state,
            engine: None,
            progress: Progress::default(),
            told: Told::default(),
        }
    }

    /// Attached, with a first checkpoint of what `fill` made.
    pub fn with(fill: impl FnOnce(&Path)) -> Self {
        let mut sandbox = Self::new();
        fill(&sandbox.root());
        sandbox.attach();
        sandbox
    }

    pub fn path(&self) -> PathBuf {
        fs::canonicalize(self.dir.path()).unwrap()
    }

    pub fn root(&self) -> PathBuf {
        self.path().join("root")
    }

    pub fn state(&self) -> PathBuf {
        self.path().join("state")
    }

    pub fn environment(&self) -> Environment {
        let mut environment = environment_of(&self.path());
        environment.conversations.told = self.told.clone();
        environment
    }

    pub fn settings() -> Settings {
        Settings {
            include: Vec::new(),
            max_file_size: 10 << 20,
            conversations: true,
        }
    }

    /// The clock of this moment: stat times are compared with it.
    pub fn now() -> Time {
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap();
        Time(i64::try_from(now.as_nanos()).unwrap())
    }

    pub fn attach(&mut self) -> Captured {
        let root = self.root();
        self.attach_at(&root).unwrap()
    }

    pub fn attach_at(&mut self, path: &Path) -> Result<Captured> {
        let request = AttachRequest {
            path: path.to_owned(),
            here: true,
            ..AttachRequest::default()
        };
        self.attach_with(&request)
    }

    pub fn attach_with(&mut self, request: &AttachRequest) -> Result<Captured> {
        let found = Engine::attach(&self.environment(), request, &Self::settings(), Self::now())?;
        self.engine = Some(found.engine);
        self.capture_as(&Why::plain(Trigger::Attach))
    }

    /// Opens the engine anew, as after a restart; with or without what the caches know.
    pub fn reopen(&mut self, with_cache: bool) {
        let engine = self.engine.take().unwrap();
        let (store, id) = (engine.store_path().to_owned(), engine.id().to_owned());
        if with_cache {
            engine.save_cache().unwrap();
        }
        drop(engine);
        self.engine = Some(Engine::open(&self.environment(), &store, &id, &Self::settings()).unwrap());
    }

    pub fn engine(&mut self) -> &mut Engine {
        self.engine.as_mut().expect("attached")
    }

    pub fn on<T>(&mut self, work: impl FnOnce(&mut Engine, &Context<'_>) -> T) -> T {
        let now = Self::now();
        let cx = Context {
            now,
            watch: &NoWatch,
            progress: &self.progress,
        };
        work(self.engine.as_mut().expect("attached"), &cx)
    }

    pub fn capture_as(&mut self, why: &Why) -> Result<Captured> {
        self.on(|engine, cx| engine.capture(Scope::All, why, cx))
    }

    pub fn capture(&mut self) -> Captured {
        self.capture_as(&Why::plain(Trigger::Save)).unwrap()
    }

    pub fn rewind(&mut self, n: u64) -> Report {
        self.execute(&Operation::Rewind(Some(Select::Number(n)))).unwrap()
    }

    pub fn execute(&mut self, operation: &Operation) -> Result<Report> {
        self.on(|engine, cx| engine.execute(operation, None, cx))
    }

    pub fn preview(&mut self, operation: &Operation) -> Result<Preview> {
        self.on(|engine, cx| engine.preview(operation, cx))
    }

    pub fn picture(&self) -> Picture {
        picture(&self.root())
    }

    pub fn write(&self, path: &str, bytes: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// Takes a file's contents out of the store, which holds few enough to have each in a file of its own.
    pub fn lose(&mut self, bytes: &str) {
        let oid = Oid::of(ObjectKind::Blob, bytes.as_bytes()).to_string();
        let objects = self.engine().store_path().join("objects");
        fs::remove_file(objects.join(&oid[..2]).join(&oid[2..])).unwrap();
    }

    pub fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root().join(path)).ok()
    }
}

/// What the engine may know, in the directory of a sandbox.
pub fn environment_of(dir: &Path) -> Environment {
    let git = std::env::var_os("PATH").and_then(|path| {
        std::env::split_paths(&path)
            .map(|dir| dir.join("git"))
            .find(|git| git.is_file())
    });
    let state = dir.join("state");
    Environment {
        git: GitEnvironment {
            program: git,
            home: Some(dir.join("home")),
            config_home: None,
            path: std::env::var_os("PATH"),
            children: Default::default(),
            scratch: Some(state.join("scratch")),
        },
        state_dir: state,
        runtime_dir: None,
        conversations: homes_of(dir),
    }
}

/// Agents' directories below `home`, and processes as `processes` has them: none.
pub fn homes_of(dir: &Path) -> Homes {
    let of = |agent, name: &str| (agent, dir.join("home").join(name));
    Homes {
        dirs: [
            of(Agent::ClaudeCode, ".claude"),
            of(Agent::Codex, ".codex"),
            of(Agent::Gemini, ".gemini"),
            of(Agent::Qwen, ".qwen"),
            of(Agent::Copilot, ".copilot"),
            of(Agent::Opencode, ".local/share/opencode"),
            of(Agent::Goose, ".local/share/goose"),
        ]
        .into(),
        processes: Some(dir.join("processes")),
        told: Told::default(),
    }
}

pub fn picture(root: &Path) -> Picture {
    let mut picture = Picture::new();
    add(root, &mut Vec::new(), &mut picture);
    picture
}

fn add(dir: &Path, prefix: &mut Vec<u8>, picture: &mut Picture) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_vec();
        if name == b".git" {
            continue;
        }
        let length = prefix.len();
        if length > 0 {
            prefix.push(b'/');
        }
        prefix.extend_from_slice(&name);
        let metadata = entry.path().symlink_metadata().unwrap();
        let kind = metadata.file_type();
        let bits = metadata.permissions().mode() & 0o7777;
        if kind.is_dir() {
            picture.insert(prefix.clone(), ('d', bits, Vec::new()));
            add(&entry.path(), prefix, picture);
        } else if kind.is_symlink() {
            let target = fs::read_link(entry.path()).unwrap().into_os_string().into_vec();
            picture.insert(prefix.clone(), ('l', 0o777, target));
        } else if kind.is_file() {
            picture.insert(prefix.clone(), ('f', bits, fs::read(entry.path()).unwrap()));
        } else {
            picture.insert(
                prefix.clone(),
                ('s', bits, metadata.rdev().to_string().into_bytes()),
            );
        }
        prefix.truncate(length);
    }
}

/// A relative path of these bytes below `root`.
pub fn at(root: &Path, bytes: &[u8]) -> PathBuf {
    root.join(OsStr::from_bytes(bytes))
}

/// Works at a moment of the test's choice.
pub fn at_time<T>(sandbox: &mut Sandbox, now: Time, work: impl FnOnce(&mut Engine, &Context<'_>) -> T) -> T {
    let progress = Progress::default();
    let cx = Context {
        now,
        watch: &NoWatch,
        progress: &progress,
    };
    work(sandbox.engine(), &cx)
}

/// Bytes that don't compress, the same for the same seed.
pub fn random_bytes(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..count)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        })
        .collect()
}

/// How much of something: little in `make test`, all of it in `make soak` (`STEPBACK_SCALE=full`).
pub fn scale(little: usize, all: usize) -> usize {
    match std::env::var("STEPBACK_SCALE").as_deref() {
        Ok("full") => all,
        Ok(number) => number.parse().unwrap_or(little),
        Err(_) => little,
    }
}

/// Asserts that git finds nothing wrong with a store; without git it says so.
pub fn fsck(store: &Path) {
    let output = std::process::Command::new("git")
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .args(["-c", "safe.directory=*", "--git-dir"])
        .arg(store)
        .args(["fsck", "--full", "--no-dangling", "--no-progress"])
        .output();
    let Ok(output) = output else {
        println!("not checked: git is not installed");
        return;
    };
    let said =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    let said: String = said.lines().filter(|line| !line.starts_with("notice:")).collect();
    assert!(output.status.success() && said.is_empty(), "{said}");
}
