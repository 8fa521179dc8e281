//! Rules from outside the tree: what holds for a root that isn't the top of its work tree, or is in none; and how all of
//! that is kept in a checkpoint.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::pattern::Patterns;
use super::place::{DirRules, Place};
use super::repo::{Fate, GitDir, Repo};
use super::{GitEnvironment, ignore_file};
use crate::error::Result;
use crate::path::TreePath;
use crate::root::DirHandle;

/// Rules that come from outside the tree, as kept in a checkpoint's side record: enough, with the ignore files in the tree, to
/// say later what was ignored then.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutsideRules {
    /// `.git/info/exclude` text of each repository in the root, by the directory that holds `.git` (the root: "").
    pub exclude: BTreeMap<TreePath, String>,
    /// Text of the global excludes file.
    pub global: String,
    /// Include patterns.
    pub include: Vec<String>,
    /// Size cap in bytes.
    pub max_file_size: u64,
    /// Case-insensitive matching (core.ignoreCase).
    pub ignore_case: bool,
    /// aider's history files are files like any other: conversations weren't kept.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub conversations_as_files: bool,
    /// From the top of the work tree to the root, ending in a slash; empty unless the root is below the top.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// Ignore files between the top of the work tree and the root, outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub above: Vec<AboveRules>,
}

/// Ignore files of a directory above the root.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AboveRules {
    /// From that directory to the root, ending in a slash.
    pub prefix: String,
    /// Text of its `.gitignore`.
    pub gitignore: String,
    /// Text of its `.stepbackignore`.
    pub stepbackignore: String,
}

/// Looks at what is above a root.
pub(super) fn read(
    git: &GitEnvironment,
    root: &Path,
    earlier: Option<&Repo>,
) -> Result<(Fate, Vec<AboveRules>)> {
    let at = TreePath::root();
    if GitDir::find(root).is_some() {
        // The root is a top itself; the scan finds that. Whatever stood here is out of force.
        let same = earlier.is_some_and(|earlier| !earlier.is_repository());
        return Ok((
            if same {
                Fate::Same
            } else {
                Fate::Rules(Repo::default())
            },
            Vec::new(),
        ));
    }
    let Some((top, git_dir)) = enclosing(root) else {
        return Ok((Repo::read(git, root, &at, b"", None, earlier)?, Vec::new()));
    };
    let mut above = Vec::new();
    let mut prefix = Vec::new();
    for dir in root.ancestors().skip(1) {
        let name = root.strip_prefix(dir).unwrap_or(root);
        prefix = [name.as_os_str().as_bytes(), b"/"].concat();
        // A directory above that can't be opened has no rules that git could read either.
        if let Ok(handle) = DirHandle::open_root(dir) {
            let text = |name| Ok::<_, crate::Error>(lossy(ignore_file::read(&handle, name, dir)?.text()));
            let rules = AboveRules {
                prefix: lossy(&prefix),
                gitignore: text(ignore_file::GIT)?,
                stepbackignore: text(ignore_file::STEPBACK)?,
            };
            if !(rules.gitignore.is_empty() && rules.stepbackignore.is_empty()) {
                above.push(rules);
            }
        }
        if dir == top {
            break;
        }
    }
    above.reverse();
    Ok((
        Repo::read(git, root, &at, &prefix, Some(git_dir), earlier)?,
        above,
    ))
}

/// The top of the work tree that a root is in, on the same file system, as for git.
fn enclosing(root: &Path) -> Option<(&Path, GitDir)> {
    let device = root.metadata().ok()?.dev();
    root.ancestors()
        .skip(1)
        .take_while(|dir| dir.metadata().is_ok_and(|stat| stat.dev() == device))
        .find_map(|dir| Some((dir, GitDir::find(dir)?)))
}

/// The place from which a root is entered.
pub(super) fn place(outside: &Arc<Repo>, above: &[AboveRules]) -> Place {
    let parse = |text: &str| Patterns::parse(text.as_bytes());
    let levels = above.iter().map(|rules| {
        let files = DirRules {
            git: parse(&rules.gitignore),
            stepback: parse(&rules.stepbackignore),
            ..DirRules::default()
        };
        (rules.prefix.clone().into_bytes(), files)
    });
    Place::outermost(Arc::clone(outside), levels.collect())
}

/// The repositories that a checkpoint's record tells of: the outermost one (or none), and those in the root.
pub(super) fn recorded(rules: &OutsideRules) -> (Arc<Repo>, BTreeMap<TreePath, Arc<Repo>>) {
    let global = Patterns::parse(rules.global.as_bytes());
    let repo = |at: &TreePath, prefix: &str, exclude: &str| {
        Arc::new(Repo::recorded(
            at.clone(),
            prefix,
            exclude,
            &global,
            rules.ignore_case,
        ))
    };
    let own = rules.exclude.get(&TreePath::root()).map_or("", String::as_str);
    let base = repo(&TreePath::root(), &rules.prefix, own);
    let inner = rules.exclude.iter().filter(|(at, _)| !at.is_root());
    (
        base,
        inner
            .map(|(at, exclude)| (at.clone(), repo(at, "", exclude)))
            .collect(),
    )
}

fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}
