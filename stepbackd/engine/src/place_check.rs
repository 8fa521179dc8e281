//! Which directories may be roots.

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

/// Refuses directories that aren't to be attached. `asked`: the directory that was named, when `path` is the top level
/// of its work tree instead.
///
/// # Errors
/// [`Error::RefusedRoot`] with the reason and what to do instead.
pub fn check_place(path: &Path, asked: &Path, state: &Path, home: Option<&Path>, force: bool) -> Result<()> {
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
    if state.starts_with(path) {
        return refuse("stepback's own files are below it", other);
    }
    if path.starts_with(state) {
        return refuse(
            "it is inside stepback's own files",
            "attach a project directory".into(),
        );
    }
    if path.components().any(|part| part.as_os_str() == ".git") || is_git_directory(path) {
        return refuse(
            "it is a git repository's own directory",
            "attach the work tree; what is below `.git` is never touched".into(),
        );
    }
    if let Some(kernel) = KERNEL_DIRS
        .iter()
        .find(|dir| path.starts_with(dir) && path != Path::new(dir))
    {
        return refuse(
            &format!("what is below {kernel} isn't files on a disk"),
            "attach a project directory".into(),
        );
    }
    if force {
        return Ok(());
    }
    let or_force = |hint: String| format!("{hint}; or use --force");
    if home.is_some_and(|home| home == path) {
        return refuse("it is the home directory", or_force(other));
    }
    if home.is_some_and(|home| home.starts_with(path)) {
        return refuse("the home directory is below it", or_force(other));
    }
    if SYSTEM_DIRS.iter().any(|dir| path == Path::new(dir)) {
        return refuse("it is a directory of the system", or_force(other));
    }
    Ok(())
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
        check_place(
            path,
            path,
            Path::new("/home/u/.local/state/stepback"),
            Some(Path::new("/home/u")),
            force,
        )
        .is_err()
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
        for path in ["/", "/home/u", "/home/u/.local/state/stepback"] {
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
