//! From the absolute paths of a request to paths within a root.

use std::path::{Path, PathBuf};

use stepback_engine::path::TreePath;

/// Of `roots`, the innermost that is `place` or above it.
pub fn innermost<'a>(roots: impl Iterator<Item = &'a Path>, place: &Path) -> Option<&'a Path> {
    roots
        .filter(|root| place.starts_with(root))
        .max_by_key(|root| root.as_os_str().len())
}

/// `path` seen from `root`; `None` when it isn't in it. Links above the last part count when the path as written isn't
/// below the root; the last part is never followed. The path need not exist.
pub fn within(root: &Path, path: &Path) -> Option<TreePath> {
    if let Some(path) = path
        .strip_prefix(root)
        .ok()
        .and_then(|relative| TreePath::from_path(relative).ok())
    {
        return Some(path);
    }
    let real: PathBuf = match path.file_name() {
        Some(name) => path.parent()?.canonicalize().ok()?.join(name),
        None => path.canonicalize().ok()?,
    };
    // The root itself may have been named through a link.
    let real = if real.starts_with(root) {
        real
    } else {
        path.canonicalize().ok()?
    };
    TreePath::from_path(real.strip_prefix(root).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_root_is_meant() {
        let roots = ["/a", "/a/b/c", "/a/b", "/ab"].map(Path::new);
        for (place, root) in [
            ("/a/b/c/d", Some("/a/b/c")),
            ("/a/b", Some("/a/b")),
            ("/a/bc", Some("/a")),
            ("/ab/x", Some("/ab")),
            ("/b", None),
        ] {
            assert_eq!(
                innermost(roots.into_iter(), Path::new(place)),
                root.map(Path::new),
                "{place}"
            );
        }
    }

    #[test]
    fn paths_are_seen_from_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let root = base.join("root");
        std::fs::create_dir_all(root.join("d")).unwrap();
        std::fs::write(base.join("outside"), "").unwrap();
        std::os::unix::fs::symlink(&root, base.join("link")).unwrap();
        std::os::unix::fs::symlink(base.join("outside"), root.join("d/out")).unwrap();
        for (path, seen) in [
            ("root", Some("")),
            ("root/./d//x", Some("d/x")),
            ("root/gone/deep/x", Some("gone/deep/x")),
            ("root/d/out", Some("d/out")),
            ("link/d/x", Some("d/x")),
            ("link", Some("")),
            ("root/../root/d/x", Some("d/x")),
            ("root/../outside", None),
            ("outside", None),
            ("root/d/.git/x", None),
            ("rooty", None),
        ] {
            let seen = seen.map(|text| TreePath::new(text.as_bytes()).unwrap());
            assert_eq!(within(&root, &base.join(path)), seen, "{path}");
        }
    }
}
