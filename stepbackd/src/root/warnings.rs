//! The warnings of a root's status: what is wrong, and what helps.

use stepback_engine::mounts::Astray;
use stepback_engine::noise::Noisy;
use stepback_engine::path::{TreePath, for_shell};
use stepback_engine::store::Finding;
use stepback_proto::Warning;

use crate::convert;
use crate::root::actor::Actor;
use crate::root::reading::Reading;
use crate::root::{elsewhere, lock, now, room, sight};
use crate::watch::Unwatched;

/// So many characters of a path that is too long for events are shown.
const PATH_SHOWN_MAX: usize = 80;
/// So many noisy files are named in the status.
const NOISY_NAMED_MAX: usize = 5;
/// So many records that can't be read are named in the status.
const DAMAGED_NAMED_MAX: usize = 3;

impl Actor {
    /// All that is to be said of the root now.
    pub(super) fn warnings(&self, read: Option<&Reading>) -> Vec<Warning> {
        let mut warnings = Vec::new();
        let whereabouts = match read {
            Some(read) => Some(read.whereabouts.clone()),
            None => lock(&self.root.known).whereabouts.clone(),
        };
        match (self.absent, whereabouts) {
            (Some(presence), Some(whereabouts)) => warnings.push(sight::absence(&whereabouts, presence)),
            // Until then its file system may not answer, and nothing else would be told.
            (None, Some(whereabouts)) if self.indexed => {
                let change = whereabouts.git_change();
                warnings.extend(change.map(|change| sight::git_changed(&whereabouts, change)));
            }
            _ => {}
        }
        if let Some(trouble) = &self.trouble {
            warnings.push(convert::warning(trouble.failure.clone()));
        }
        warnings.extend(read.and_then(|read| read.bad_journal.clone()));
        let mut warn = |kind: &str, message: String, hint: &str| {
            warnings.push(Warning {
                kind: kind.into(),
                message,
                hint: hint.into(),
            });
        };
        if let Some(every) = self.poll {
            let message = if self.watch.refused() {
                let needed = self.watch.needed();
                format!("not enough watches for file events here, where {needed} directories need one each")
            } else if let Some((number, one, why)) = self.watch.unwatched() {
                not_watched(number, &one, why)
            } else {
                "this file system doesn't tell of every change".to_owned()
            };
            let message = format!(
                "{message}: everything is looked at every {} s",
                every.as_secs_f64().ceil()
            );
            let hint = if self.watch.refused() {
                "raise the limit: sudo sysctl fs.inotify.max_user_watches=1048576, then `stepback attach` again"
            } else {
                "`stepback save` captures at once"
            };
            warn("polling", message, hint);
        }
        if let Some(message) = read.and_then(|read| damaged(&read.damaged)) {
            let hint = "`stepback status --verify` names what is damaged; the other checkpoints are usable";
            warn("damaged", message, hint);
        }
        for path in read.iter().flat_map(|read| read.leftovers()) {
            let message = format!(
                "{path}: left by an interrupted operation of stepback, of which nothing else is known"
            );
            warn("leftover", message, "`stepback recover` clears it");
        }
        if let Some(paths) = read.and_then(|read| read.half_forgotten.as_ref()) {
            let named: Vec<String> = paths.iter().map(TreePath::to_string).collect();
            let message = format!(
                "a purge isn't finished: the bytes of {} may still be in the store",
                named.join(", ")
            );
            let paths: Vec<String> = paths.iter().map(|path| for_shell(path.as_path())).collect();
            let hint = format!(
                "the daemon goes on with it by itself; `stepback forget -p {}` does so now",
                paths.join(" -p ")
            );
            warn("forget_unfinished", message, &hint);
        }
        for noisy in read
            .iter()
            .flat_map(|read| read.noisy.iter().take(NOISY_NAMED_MAX))
        {
            warn("noisy", too_noisy(noisy), &quieter(noisy));
        }
        for uncovered in read.iter().flat_map(|read| &read.uncovered) {
            let message = format!(
                "{} is gone: {} files ({}) that were ignored are captured since checkpoint {}",
                uncovered.rules,
                uncovered.files,
                mebibytes(uncovered.bytes),
                uncovered.checkpoint
            );
            let rules = for_shell(uncovered.rules.as_path());
            let hint = format!("`stepback restore {} -p {rules}` puts it back", uncovered.before);
            warn("uncovered", message, &hint);
        }
        for note in read.iter().flat_map(|read| &read.rule_notes) {
            let hint = "install git, then `stepback daemon restart`; or take them in with `stepback attach --include`";
            warn("git_missing", note.clone(), hint);
        }
        for (path, how) in read.iter().flat_map(|read| &read.astray) {
            let (what, remedy) = match how {
                Astray::Unmounted => ("what was mounted there isn't", "mount it again"),
                Astray::Covered => ("something is mounted over captured files", "unmount it"),
            };
            warn(
                "mount",
                format!("{path}: {what}: it is neither captured nor changed by a rewind"),
                &format!(
                    "{remedy}; or `stepback attach --here {}` takes it as it is",
                    for_shell(&self.root.path)
                ),
            );
        }
        for (agent, note) in read.iter().flat_map(|read| &read.conversation_notes) {
            warn(
                "conversation",
                format!("conversations of {} aren't kept, files are: {note}", agent.name()),
                "`conversations = false` in config.toml turns this off",
            );
        }
        if let Some(message) = read.and_then(|read| from_later(&read.from_later)) {
            let hint = "set the clock; numbers and `~2` name checkpoints whatever the clock says";
            warn("clock", message, hint);
        }
        for name in read.iter().flat_map(|read| &read.long_sessions) {
            warn(
                "session_open",
                format!("session {name} has been open for more than 7 days"),
                &format!("`stepback session end {name}` ends it"),
            );
        }
        if let Some((read, usage)) = read.and_then(|read| Some((read, read.usage?))) {
            warnings.extend(room::warnings(usage, &self.config.quota, read.refused()));
        }
        warnings.extend(self.elsewhere.iter().map(elsewhere::warning));
        warnings.extend(self.went.warning(now()));
        warnings
    }
}

/// What is said of directories that can't be watched. Their paths are long.
fn not_watched(number: usize, one: &TreePath, why: Unwatched) -> String {
    let why = match why {
        Unwatched::TooLong => "the path is too long for the system",
        Unwatched::Silent => "the file system there doesn't tell of every change",
    };
    let shown: String = one.to_string().chars().take(PATH_SHOWN_MAX).collect();
    let more = if shown.len() < one.to_string().len() {
        "..."
    } else {
        ""
    };
    let directories = if number == 1 { "directory" } else { "directories" };
    format!("{number} {directories} can't be watched, {why} ({shown}{more})")
}

/// What is said of checkpoints that were made later than now.
fn from_later(numbers: &[u64]) -> Option<String> {
    const WHY: &str = "from later than now: the clock was ahead then, or is behind now";
    match numbers {
        [] => None,
        [n] => Some(format!("checkpoint {n} is {WHY}")),
        [first, .., last] => {
            let count = numbers.len();
            Some(format!("{count} checkpoints, from {first} to {last}, are {WHY}"))
        }
    }
}

/// What is said of records that can't be read; the first few are named.
fn damaged(findings: &[Finding]) -> Option<String> {
    let named: Vec<_> = findings
        .iter()
        .take(DAMAGED_NAMED_MAX)
        .map(|finding| format!("{} ({})", finding.what, finding.how))
        .collect();
    let more = match findings.len() - named.len() {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    let records = match findings.len() {
        0 => return None,
        1 => "a record of the store".to_owned(),
        n => format!("{n} records of the store"),
    };
    Some(format!("{records} can't be read: {}{more}", named.join(", ")))
}

/// What is said of a file that fills the store.
pub(super) fn too_noisy(noisy: &Noisy) -> String {
    if noisy.is_dir {
        return format!(
            "files in {}/ were captured {} times in the last hour: {} of versions, before compression",
            noisy.path,
            noisy.versions,
            mebibytes(noisy.bytes)
        );
    }
    format!(
        "{} was captured {} times in the last hour: {} of versions, before compression",
        noisy.path,
        noisy.versions,
        mebibytes(noisy.bytes)
    )
}

/// What helps against it.
pub(super) fn quieter(noisy: &Noisy) -> String {
    let path = &noisy.path;
    let slash = if noisy.is_dir { "/" } else { "" };
    format!(
        "if nobody needs it back: put the line `/{}{slash}` into .gitignore or .stepbackignore; `stepback forget -p {}` purges \
         what is stored of it, too",
        as_pattern(path),
        for_shell(path.as_path())
    )
}

/// A path as ignore files take it literally.
fn as_pattern(path: &TreePath) -> String {
    let mut pattern = String::new();
    for c in path.to_string().chars() {
        if matches!(c, '\\' | '*' | '?' | '[') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    if pattern.ends_with(' ') {
        pattern.insert(pattern.len() - 1, '\\');
    }
    pattern
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}
