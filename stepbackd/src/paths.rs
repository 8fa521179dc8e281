//! Where the daemon keeps its things: STATE, socket, config. Reads the environment, through a function that the caller
//! gives, so that it can be tested.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::error::{At, Error, Result};
use crate::state_file;

/// The places of one daemon.
#[derive(Debug, Clone)]
pub struct Paths {
    /// STATE: stores, caches, registry, lock, log.
    pub state: PathBuf,
    /// The socket that clients connect to.
    pub socket: PathBuf,
    /// The user's settings.
    pub config: PathBuf,
    /// The user named that file: it must be there.
    pub config_is_named: bool,
}

impl Paths {
    /// From the environment, as `lookup` gives it.
    ///
    /// # Errors
    /// When there is no home directory to start from, or a path that was given isn't absolute.
    pub fn from_environment(lookup: impl Fn(&str) -> Option<OsString>) -> Result<Self> {
        let given = |name: &str| -> Result<Option<PathBuf>> {
            match lookup(name).filter(|value| !value.is_empty()).map(PathBuf::from) {
                Some(path) if path.is_relative() => Err(Error::refused(
                    format!("{name} is not an absolute path: {}", path.display()),
                    format!("set {name} to an absolute path, or unset it"),
                )),
                path => Ok(path),
            }
        };
        // The base directory specification says that a relative one is to be ignored.
        let base = |name: &str| lookup(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let below_home = |name: &str, rest: &str| -> Result<PathBuf> {
            if let Some(base) = base(name) {
                return Ok(base);
            }
            let home = base("HOME").or_else(home_of_this_user).ok_or_else(|| {
                Error::refused(
                    "there is no home directory",
                    "set HOME, or STEPBACK_STATE_DIR and STEPBACK_CONFIG",
                )
            })?;
            Ok(home.join(rest))
        };
        let state = match given("STEPBACK_STATE_DIR")? {
            Some(path) => path,
            None => below_home("XDG_STATE_HOME", ".local/state")?.join("stepback"),
        };
        let named = given("STEPBACK_CONFIG")?;
        let config_is_named = named.is_some();
        let config = match named {
            Some(path) => path,
            None => below_home("XDG_CONFIG_HOME", ".config")?.join("stepback/config.toml"),
        };
        let socket = match given("STEPBACK_SOCKET")? {
            Some(path) => path,
            None => match base("XDG_RUNTIME_DIR").filter(|dir| is_ours(dir)) {
                Some(dir) => dir.join("stepback/stepbackd.sock"),
                None => state.join("stepbackd.sock"),
            },
        };
        Ok(Self {
            state,
            socket,
            config,
            config_is_named,
        })
    }

    /// Makes STATE and what must be in it, all 0700.
    ///
    /// # Errors
    /// When STATE belongs to another user, or can't be made, or something else is where directories or files are to be.
    pub fn make_state(&self) -> Result<()> {
        make_private_dir(&self.state)?;
        let metadata = std::fs::symlink_metadata(&self.state).at(&self.state)?;
        let me = nix::unistd::geteuid().as_raw();
        if metadata.uid() != me {
            return Err(Error::refused(
                format!(
                    "{} belongs to user {}, not to user {me}",
                    self.state.display(),
                    metadata.uid()
                ),
                "run stepback as the user that owns it (without sudo), or set STEPBACK_STATE_DIR",
            ));
        }
        if !metadata.is_dir() {
            return Err(Error::refused(
                format!("{} is not a directory", self.state.display()),
                "move it away, or set STEPBACK_STATE_DIR",
            ));
        }
        if metadata.mode() & 0o077 != 0 {
            std::fs::set_permissions(&self.state, PermissionsExt::from_mode(0o700)).at(&self.state)?;
        }
        for dir in [
            self.cookies(),
            self.log_dir(),
            self.spool(),
            self.gaps(),
            self.state.join("stores"),
            self.cache(),
        ] {
            make_private_dir(&dir)?;
        }
        self.check_files()
    }

    /// That what is read or written at a start is a regular file, if it is there.
    ///
    /// # Errors
    /// With the path, when something else is there.
    pub fn check_files(&self) -> Result<()> {
        [
            self.lock(),
            self.daemon_json(),
            self.registry(),
            self.alive(),
            self.log_file(),
        ]
        .iter()
        .try_for_each(|file| state_file::check(file))
    }

    /// The directory of our own that the socket is in, if it is one outside of STATE.
    pub fn runtime_dir(&self) -> Option<PathBuf> {
        let dir = self.socket.parent()?;
        (dir.file_name()? == "stepback" && !dir.starts_with(&self.state)).then(|| dir.to_owned())
    }

    /// Held as long as a daemon of this STATE lives.
    pub fn lock(&self) -> PathBuf {
        self.state.join("lock")
    }

    /// Who serves this STATE.
    pub fn daemon_json(&self) -> PathBuf {
        self.state.join("daemon.json")
    }

    /// Where the socket is when there is no runtime directory, or it doesn't do.
    pub fn socket_in_state(&self) -> PathBuf {
        self.state.join("stepbackd.sock")
    }

    /// Room that is given up on a full disk.
    pub fn reserve(&self) -> PathBuf {
        self.state.join("reserve")
    }

    /// The roots that are attached.
    pub fn registry(&self) -> PathBuf {
        self.state.join("roots.json")
    }

    /// When hooks of agents were heard of.
    pub fn hooks(&self) -> PathBuf {
        self.state.join("hooks.json")
    }

    /// Watched by ourselves: a file made there tells when all events before it have come.
    pub fn cookies(&self) -> PathBuf {
        self.state.join("cookies")
    }

    /// For each root, what makes its next start fast.
    pub fn cache(&self) -> PathBuf {
        self.state.join("cache")
    }

    /// Its modification time is when the daemon was alive last.
    pub fn alive(&self) -> PathBuf {
        self.state.join("alive")
    }

    /// What is doubted of the clock, if anything is.
    pub fn clock(&self) -> PathBuf {
        self.state.join("clock")
    }

    /// For each root, when nothing was watched.
    pub fn gaps(&self) -> PathBuf {
        self.state.join("gaps")
    }

    /// Those of the root `id`.
    pub fn gaps_of(&self, id: &str) -> PathBuf {
        self.gaps().join(format!("{id}.json"))
    }

    /// What hooks of agents couldn't tell in time.
    pub fn unsaved(&self) -> PathBuf {
        self.state.join(stepback_proto::UNSAVED_DIR)
    }

    /// What went of the root `id` to make room.
    pub fn went_of(&self, id: &str) -> PathBuf {
        self.gaps().join(format!("{id}.went"))
    }

    /// Answers that a slow client hasn't taken yet.
    pub fn spool(&self) -> PathBuf {
        self.state.join("spool")
    }

    /// Where the log is when it isn't in the journal.
    pub fn log_dir(&self) -> PathBuf {
        self.state.join("log")
    }

    /// The log when it isn't in the journal.
    pub fn log_file(&self) -> PathBuf {
        self.log_dir().join("stepbackd.log")
    }
}

/// Makes `dir` and the directories above it, 0700 whatever the umask; one that is there stays as it is.
///
/// # Errors
/// When it can't be made.
pub fn make_private_dir(dir: &Path) -> Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    // What the system says of a file in its place, or a link to nothing, is that it exists.
    if made.is_err() && dir.symlink_metadata().is_ok() && !dir.is_dir() {
        return Err(state_file::in_the_way(dir, "is not a directory"));
    }
    made.at(dir)
}

fn is_ours(dir: &Path) -> bool {
    std::fs::metadata(dir).is_ok_and(|m| m.is_dir() && m.uid() == nix::unistd::geteuid().as_raw())
}

fn home_of_this_user() -> Option<PathBuf> {
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid())
        .ok()
        .flatten()?;
    Some(user.dir).filter(|dir| dir.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(pairs: &[(&str, &str)]) -> Result<Paths> {
        Paths::from_environment(|name| pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| v.into()))
    }

    #[test]
    fn defaults_are_below_home() {
        let paths = paths(&[("HOME", "/h")]).unwrap();
        assert_eq!(paths.state, Path::new("/h/.local/state/stepback"));
        assert_eq!(paths.config, Path::new("/h/.config/stepback/config.toml"));
        assert_eq!(paths.socket, Path::new("/h/.local/state/stepback/stepbackd.sock"));
    }

    #[test]
    fn overrides_win_and_must_be_absolute() {
        let all = [
            ("HOME", "/h"),
            ("XDG_STATE_HOME", "/x"),
            ("STEPBACK_STATE_DIR", "/s"),
            ("STEPBACK_SOCKET", "/k/sock"),
            ("STEPBACK_CONFIG", "/c.toml"),
        ];
        let given = paths(&all).unwrap();
        assert_eq!(
            (given.state.to_str(), given.socket.to_str()),
            (Some("/s"), Some("/k/sock"))
        );
        assert_eq!(paths(&all[..2]).unwrap().state, Path::new("/x/stepback"));
        assert!(
            paths(&[("HOME", "/h"), ("STEPBACK_STATE_DIR", "s")])
                .unwrap_err()
                .to_string()
                .contains("absolute")
        );
    }

    #[test]
    fn a_runtime_directory_is_used_when_it_is_ours() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = dir.path().to_str().unwrap();
        let with = paths(&[("HOME", "/h"), ("XDG_RUNTIME_DIR", runtime)]).unwrap();
        assert_eq!(with.socket, dir.path().join("stepback/stepbackd.sock"));
        let without = paths(&[("HOME", "/h"), ("XDG_RUNTIME_DIR", "/nowhere")]).unwrap();
        assert!(without.socket.starts_with("/h"));
    }

    #[test]
    fn state_is_private_whatever_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("a/state");
        std::fs::create_dir_all(&state).unwrap();
        std::fs::set_permissions(&state, PermissionsExt::from_mode(0o755)).unwrap();
        let paths = Paths {
            state: state.clone(),
            socket: state.join("s"),
            config: state.join("c"),
            config_is_named: false,
        };
        paths.make_state().unwrap();
        for path in [state, paths.cookies(), paths.spool(), paths.log_dir()] {
            assert_eq!(std::fs::metadata(path).unwrap().mode() & 0o777, 0o700);
        }
    }
}
