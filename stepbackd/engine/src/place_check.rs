//! Which directories may be roots.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::head;

/// Directories that are never roots themselves; what is below them may be.
const SYSTEM_DIRS: [&str; 16] = [
    "/bin", "/boot", "/dev", "/etc", "/lib", "/opt", "/proc", "/root", "/run", "/sbin", "/srv", "/sys",
    "/tmp", "/usr", "/var", "/lib64",
];

/// Below these nothing is a root: what is there isn't files.
const KERNEL_DIRS: [&str; 3] = ["/dev", "/proc", "/sys"];

/// The top level of the git work tree that holds `path`, if one does.
#[must_use]
pub fn work_tree_top(path: &Path) -> Option<PathBuf> {
    path.ancestors()
        .find(|dir| head::git_dir(dir).is_some_and(|git| git.join("HEAD").exists()))
        .map(Path::to_owned)
}

/// Whose places no root may hold.
#[derive(Debug, Clone, Copy)]
pub struct Owners<'a> {
    /// Directories of stepback's own: STATE, and where its socket is. They needn't exist.
    pub ours: &'a [&'a Path],
    /// The home directory.
    pub home: Option<&'a Path>,
}

/// Refuses directories that aren't to be attached. `path` is canonical; `asked`: the directory that was named, when
/// `path` is the top level of its work tree instead.
///
/// # Errors
/// [`Error::RefusedRoot`] with the reason and what to do instead.
pub fn check_place(path: &Path, asked: &Path, owners: Owners<'_>, force: bool) -> Result<()> {
    let other = if path == asked {
        "attach a project directory below it".to_owned()
    } else {
        format!(
            "{} is the top level of the git work tree; `stepback attach --here` takes {} alone",
            path.display(),
            asked.display()
        )
    };
    let refuse = |why: &str, hint: String| {
        Err(Error::RefusedRoot {
            path: path.to_owned(),
            why: why.into(),
            hint,
        })
    };
    if path == Path::new("/") {
        return refuse("it is the whole file system", other);
    }
    for ours in owners.ours {
        if holds(path, ours) {
            return refuse("stepback's own files are below it", other);
        }
        if holds(ours, path) {
            return refuse(
                "it is inside stepback's own files",
                "attach a project directory".into(),
            );
        }
    }
    if path.components().any(|part| part.as_os_str() == ".git") || is_git_directory(path) {
        return refuse(
            "it is a git repository's own directory",
            "attach the work tree; what is below `.git` is never touched".into(),
        );
    }
    if let Some(kernel) = KERNEL_DIRS.iter().find(|dir| path.starts_with(dir)) {
        return refuse(
            &format!("what is in {kernel} isn't files on a disk"),
            "attach a project directory".into(),
        );
    }
    if force {
        return Ok(());
    }
    let or_force = |hint: String| format!("{hint}; or use --force");
    if let Some(home) = owners.home.filter(|home| holds(path, home)) {
        let why = match holds(home, path) {
            true => "it is the home directory",
            false => "the home directory is below it",
        };
        return refuse(why, or_force(other));
    }
    if SYSTEM_DIRS.iter().any(|dir| path == Path::new(dir)) {
        return refuse("it is a directory of the system", or_force(other));
    }
    Ok(())
}

/// Whether `inner` is `outer` or below it, however the two are written: through links, or another mount of the same
/// directory.
fn holds(outer: &Path, inner: &Path) -> bool {
    let inner = real(inner);
    if inner.starts_with(real(outer)) {
        return true;
    }
    let which = |path: &Path| {
        fs::metadata(path)
            .ok()
            .map(|metadata| (metadata.dev(), metadata.ino()))
    };
    which(outer).is_some_and(|outer| inner.ancestors().any(|above| which(above) == Some(outer)))
}

/// Without links, as far as the path exists.
fn real(path: &Path) -> PathBuf {
    let found = path
        .ancestors()
        .find_map(|above| Some((above, fs::canonicalize(above).ok()?)));
    match found {
        Some((above, real)) => match path.strip_prefix(above) {
            Ok(rest) if rest.as_os_str().is_empty() => real,
            Ok(rest) => real.join(rest),
            Err(_) => path.to_owned(),
        },
        None => path.to_owned(),
    }
}

/// Which directories `paths` are, those that are there: device and inode.
#[must_use]
pub fn which<'a>(paths: impl Iterator<Item = &'a Path>) -> Vec<(u64, u64)> {
    let found = paths.filter_map(|path| fs::metadata(path).ok());
    found.map(|metadata| (metadata.dev(), metadata.ino())).collect()
}

/// Whether git keeps a repository right in `path`, as in a bare one.
fn is_git_directory(path: &Path) -> bool {
    path.join("HEAD").is_file() && path.join("objects").is_dir() && path.join("refs").is_dir()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn refused(path: &str, force: bool) -> bool {
        let path = Path::new(path);
        let owners = Owners {
            ours: &[Path::new("/home/u/.local/state/stepback")],
            home: Some(Path::new("/home/u")),
        };
        check_place(path, path, owners, force).is_err()
    }

    #[test]
    fn links_and_what_is_not_there_yet_hide_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let real = fs::canonicalize(dir.path()).unwrap().join("volume");
        let home = dir.path().join("home");
        fs::create_dir_all(real.join("project")).unwrap();
        std::os::unix::fs::symlink(&real, &home).unwrap();
        let state = home.join(".local/state/stepback");
        let refused = |path: &Path, force| {
            let owners = Owners {
                ours: &[&state],
                home: Some(&home),
            };
            check_place(path, path, owners, force).is_err()
        };
        assert!(refused(&real, false), "the home directory");
        assert!(
            refused(&real, true),
            "STATE is below it, though it isn't made yet"
        );
        assert!(!refused(&real.join("project"), false));
        fs::create_dir_all(state.join("stores")).unwrap();
        assert!(refused(&real.join(".local/state/stepback/stores"), true));
    }

    #[test]
    fn places_that_are_no_projects() {
        for path in [
            "/",
            "/home",
            "/home/u",
            "/tmp",
            "/usr",
            "/proc/self",
            "/home/u/.local/state/stepback/x",
            "/home/u/.local",
        ] {
            assert!(refused(path, false), "{path}");
        }
        for path in ["/home/u/project", "/tmp/x", "/srv/www", "/root/x"] {
            assert!(!refused(path, false), "{path}");
        }
    }

    #[test]
    fn force_helps_but_not_for_the_whole_disk_or_our_own_files() {
        assert!(!refused("/tmp", true));
        for path in [
            "/",
            "/home/u",
            "/home/u/.local/state/stepback",
            "/dev",
            "/proc",
            "/sys",
        ] {
            assert!(refused(path, true), "{path}");
        }
    }

    #[test]
    fn what_git_keeps_for_itself_is_refused_whatever_is_forced() {
        for path in [
            "/home/u/p/.git",
            "/home/u/p/.git/refs/heads",
            "/home/u/p/sub/.git/hooks",
        ] {
            assert!(refused(path, true), "{path}");
        }
        assert!(!refused("/home/u/p/.github", false));
        let bare = tempfile::tempdir().unwrap();
        for dir in ["objects", "refs"] {
            fs::create_dir(bare.path().join(dir)).unwrap();
        }
        fs::write(bare.path().join("HEAD"), "ref: refs/heads/main\n").unwrap();
        assert!(refused(bare.path().to_str().unwrap(), true));
    }
}
