//! The rules in force for the entries of one directory, and what they say of an entry.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::pattern::{Patterns, Says};
use super::repo::Repo;
use super::{Rules, builtin};
use crate::path::DOT_GIT;

/// How a directory is captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Below {
    /// By the rules.
    ByRules,
    /// An include pattern takes in all of it.
    All,
    /// It is ignored; only what is tracked or included shows.
    Exceptions,
}

/// Ignore files of a directory, linked to those of the directories above.
#[derive(Debug)]
pub(super) struct Level {
    above: Option<Arc<Level>>,
    base: Base,
    stepback: Patterns,
    git: Patterns,
    /// A repository begins here; always there at the outermost level.
    repo: Option<Arc<Repo>>,
}

/// How a path within the root is made relative to the directory of the ignore files.
#[derive(Debug)]
enum Base {
    /// So many bytes at its start are the directory.
    Strip(usize),
    /// The directory is above the root; these bytes come before the path.
    Prepend(Vec<u8>),
}

impl Level {
    fn says(&self, patterns: &Patterns, path: &[u8], is_dir: bool, ignore_case: bool) -> Option<Says> {
        if patterns.is_empty() {
            return None;
        }
        match &self.base {
            Base::Strip(bytes) => patterns.says(&path[*bytes..], is_dir, ignore_case),
            Base::Prepend(prefix) => patterns.says(&[prefix, path].concat(), is_dir, ignore_case),
        }
    }
}

/// Ignore files of a directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DirRules {
    pub(super) stepback: Patterns,
    pub(super) git: Patterns,
    /// The directory holds `.git`.
    pub(super) repo: bool,
    /// It holds `Cargo.toml`.
    pub(super) cargo: bool,
}

impl DirRules {
    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether it says the same.
    pub fn is_as(&self, other: Option<&Self>) -> bool {
        other.map_or_else(|| self.is_empty(), |other| self == other)
    }

    /// Whether both lead to the same verdicts below subdirectories too.
    pub fn same_below(&self, other: Option<&Self>) -> bool {
        let none = Self::default();
        let other = other.unwrap_or(&none);
        (&self.stepback, &self.git, self.repo) == (&other.stepback, &other.git, other.repo)
    }

    /// Whether it holds `Cargo.toml`.
    pub fn has_cargo(&self) -> bool {
        self.cargo
    }
}

/// The rules in force for the entries of one directory.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    level: Arc<Level>,
    repo: Arc<Repo>,
    below: Below,
    cargo: bool,
}

impl Place {
    /// Outside and above the root. `above`: ignore files between the top of the work tree and the root, outermost first,
    /// each with the path from its directory to the root, ending in a slash.
    pub(super) fn outermost(repo: Arc<Repo>, above: Vec<(Vec<u8>, DirRules)>) -> Self {
        let mut level = Arc::new(Level {
            above: None,
            base: Base::Strip(0),
            stepback: Patterns::default(),
            git: Patterns::default(),
            repo: Some(Arc::clone(&repo)),
        });
        for (prefix, rules) in above {
            let base = Base::Prepend(prefix);
            level = Arc::new(Level {
                above: Some(level),
                base,
                stepback: rules.stepback,
                git: rules.git,
                repo: None,
            });
        }
        Self {
            level,
            repo,
            below: Below::ByRules,
            cargo: false,
        }
    }

    /// The place of a directory right below (or of the root, from the outermost). `repo`: the repository that begins there.
    pub(super) fn enter(
        &self,
        path: &[u8],
        below: Below,
        rules: Option<&DirRules>,
        repo: Option<Arc<Repo>>,
    ) -> Self {
        let mut place = Self {
            below,
            cargo: rules.is_some_and(|rules| rules.cargo),
            ..self.clone()
        };
        let Some(rules) = rules.filter(|_| below == Below::ByRules) else {
            return place;
        };
        if repo.is_some() || !rules.git.is_empty() || !rules.stepback.is_empty() {
            place.level = Arc::new(Level {
                above: Some(Arc::clone(&self.level)),
                base: Base::Strip(if path.is_empty() { 0 } else { path.len() + 1 }),
                stepback: rules.stepback.clone(),
                git: rules.git.clone(),
                repo: repo.clone(),
            });
        }
        if let Some(repo) = repo {
            place.repo = repo;
        }
        place
    }

    /// Whether an entry is captured and, for a directory, how; `None`: it is left out. `path` is that of the entry. Into
    /// `hits` goes which built-in pattern leaves it out.
    pub fn verdict(
        &self,
        rules: &Rules,
        path: &[u8],
        name: &[u8],
        is_dir: bool,
        hits: &AtomicU32,
    ) -> Option<Below> {
        if never_captured(name)
            || rules.is_git_own(path)
            || (is_conversation(path) && !rules.takes_conversations)
        {
            return None;
        }
        if self.below == Below::All || rules.include.takes(path, is_dir) {
            return Some(Below::All);
        }
        let built_in = match self.below {
            Below::Exceptions => None,
            _ => match self.user_says(path, is_dir) {
                Some(Says::Keep) => return Some(Below::ByRules),
                Some(Says::Ignore) => None,
                None => match builtin::find(name, is_dir, self.cargo) {
                    None => return Some(Below::ByRules),
                    found => found,
                },
            },
        };
        let exception = self.exception(rules, path, name, is_dir);
        if let (None, Some(index)) = (exception, built_in) {
            hits.fetch_or(1 << index, Ordering::Relaxed);
        }
        exception
    }

    /// What ignore files say, the nearest first; then what is outside the tree.
    fn user_says(&self, path: &[u8], is_dir: bool) -> Option<Says> {
        let ignore_case = self.repo.ignore_case;
        let mut same_repo = true;
        let mut level = Some(&self.level);
        while let Some(at) = level {
            let mut says = at.says(&at.stepback, path, is_dir, ignore_case);
            if same_repo && says.is_none() {
                says = at.says(&at.git, path, is_dir, ignore_case);
            }
            if says.is_some() {
                return says;
            }
            same_repo &= at.repo.is_none();
            level = at.above.as_ref();
        }
        let within = if self.repo.at.is_root() {
            0
        } else {
            self.repo.at.as_bytes().len() + 1
        };
        let from_top = match self.repo.prefix.is_empty() {
            true => Cow::Borrowed(&path[within..]),
            false => Cow::Owned([&self.repo.prefix, &path[within..]].concat()),
        };
        [&self.repo.exclude, &self.repo.global]
            .into_iter()
            .find_map(|patterns| patterns.says(&from_top, is_dir, ignore_case))
    }

    /// What is captured of something ignored: what the index has, and what include patterns may take in.
    fn exception(&self, rules: &Rules, path: &[u8], name: &[u8], is_dir: bool) -> Option<Below> {
        let mut level = Some(&self.level);
        while let Some(at) = level {
            if let Some(repo) = &at.repo {
                let found = match is_dir {
                    true if repo.tracked.has_repository(path) => Some(Below::ByRules),
                    true => repo.tracked.has_below(path).then_some(Below::Exceptions),
                    false => repo.tracked.has(path).then_some(Below::ByRules),
                };
                if found.is_some() {
                    repo.used.store(true, Ordering::Relaxed);
                    return found;
                }
            }
            level = at.above.as_ref();
        }
        (is_dir && rules.include.may_take_below(path, name)).then_some(Below::Exceptions)
    }
}

/// What no rule can bring in: git's own.
fn never_captured(name: &[u8]) -> bool {
    name == DOT_GIT
}

/// aider's two history files: where conversations are kept they are one, else files like any other.
fn is_conversation(path: &[u8]) -> bool {
    crate::conversation::AIDER_FILES
        .iter()
        .any(|file| path == file.as_bytes())
}
