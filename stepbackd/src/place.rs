//! From the absolute paths of a request to paths within a root.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

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
    let beside = match path.file_name() {
        Some(name) => real(path.parent()?)?.join(name),
        None => real(path)?,
    };
    // The root itself may have been named through a link.
    let inside = if beside.starts_with(root) {
        beside
    } else {
        real(path)?
    };
    TreePath::from_path(inside.strip_prefix(root).ok()?).ok()
}

/// So many links are followed on the way to one path, as by the system.
const LINKS_MAX: usize = 40;

/// `path`, which is absolute, without links. It need not exist: links that lead to something that is gone are followed as
/// well, and what is missing is taken as it is written. `None`: links lead in a circle, or nobody lets us look.
pub fn real(path: &Path) -> Option<PathBuf> {
    if let Ok(real) = path.canonicalize() {
        return Some(real);
    }
    let reversed = |path: &Path| -> Vec<OsString> {
        let parts = path.components().rev().map(Component::as_os_str);
        parts.map(OsString::from).collect()
    };
    let mut links = 0;
    let mut at = PathBuf::from("/");
    let mut rest = reversed(path);
    while let Some(part) = rest.pop() {
        match part.as_encoded_bytes() {
            b"." => continue,
            b".." => {
                at.pop();
                continue;
            }
            _ => {}
        }
        // An absolute one replaces what was before.
        let next = at.join(&part);
        match next.read_link() {
            Ok(target) => {
                links += 1;
                if links > LINKS_MAX {
                    return None;
                }
                rest.extend(reversed(&target));
            }
            // No link, or nothing at all.
            Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::NotFound) => at = next,
            Err(_) => return None,
        }
    }
    Some(at)
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
        std::os::unix::fs::symlink("link/gone", base.join("dangling")).unwrap();
        for (path, seen) in [
            ("root", Some("")),
            ("root/./d//x", Some("d/x")),
            ("root/gone/deep/x", Some("gone/deep/x")),
            ("root/d/out", Some("d/out")),
            ("link/d/x", Some("d/x")),
            ("link", Some("")),
            ("link/gone/x", Some("gone/x")),
            ("dangling", Some("gone")),
            ("dangling/x", Some("gone/x")),
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

    #[test]
    fn what_is_missing_is_found_through_links_and_a_circle_has_an_end() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(base.join("a/b")).unwrap();
        let absolute = base.join("a/b");
        for (link, target) in [
            ("l", Path::new("a")),
            ("a/up", Path::new("../a/b/..")),
            ("abs", &absolute),
            ("gone", Path::new("./l//b/./r")),
            ("circle", Path::new("circle/x")),
        ] {
            std::os::unix::fs::symlink(target, base.join(link)).unwrap();
        }
        std::fs::write(base.join("file"), "").unwrap();
        for (path, want) in [
            ("l", Some("a")),
            ("l/b/r", Some("a/b/r")),
            ("l/up/b/r/s", Some("a/b/r/s")),
            ("abs/r", Some("a/b/r")),
            ("gone", Some("a/b/r")),
            ("gone/s", Some("a/b/r/s")),
            ("nothing/l", Some("nothing/l")),
            ("circle", None),
            ("file/x", None),
        ] {
            assert_eq!(real(&base.join(path)), want.map(|want| base.join(want)), "{path}");
        }
    }
}
