//! The user's settings: typed, strict, with an override table for each root.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use stepback_engine::engine::Budget;
use stepback_engine::retention::Policy;
use stepback_engine::rules::check_include;

use crate::error::{At, Error, Result};

const HINT: &str = "mend that line; the README lists the settings";

/// A number of bytes, written as `"100 MiB"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Size(pub u64);

impl TryFrom<String> for Size {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let digits = text
            .trim_end_matches(|c: char| c.is_ascii_alphabetic())
            .trim_end();
        let unit = text[digits.len()..].trim_start();
        let factor: u64 = match unit {
            "" => 1,
            "K" | "KiB" => 1 << 10,
            "M" | "MiB" => 1 << 20,
            "G" | "GiB" => 1 << 30,
            _ => return Err(format!("{text:?} is not a size: the units are KiB, MiB and GiB")),
        };
        let number: u64 = digits
            .trim()
            .parse()
            .map_err(|_| format!("{text:?} is not a size, such as \"100 MiB\""))?;
        number
            .checked_mul(factor)
            .map(Self)
            .ok_or_else(|| format!("{text:?} is too large"))
    }
}

/// The type of a file system: the number that `stat -f -c %t` prints, in hexadecimal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
struct FileSystem(u64);

impl TryFrom<String> for FileSystem {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        u64::from_str_radix(text.trim_start_matches("0x"), 16)
            .map(Self)
            .map_err(|_| format!("{text:?} is no type of a file system: `stat -f -c %t` prints it"))
    }
}

/// An include pattern.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
struct Glob(String);

impl TryFrom<String> for Glob {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match check_include(&text) {
            Ok(()) => Ok(Self(text)),
            Err(why) => Err(format!("the include pattern {text:?} can't be used: {why}")),
        }
    }
}

/// What is set of which checkpoints are kept for how long: the fields of [`Policy`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Retention {
    all_hours: Option<u32>,
    minutely_hours: Option<u32>,
    hourly_days: Option<u32>,
    daily_days: Option<u32>,
    newest: Option<u32>,
}

impl Retention {
    fn over(&self, policy: Policy) -> Policy {
        Policy {
            all_hours: self.all_hours.unwrap_or(policy.all_hours),
            minutely_hours: self.minutely_hours.unwrap_or(policy.minutely_hours),
            hourly_days: self.hourly_days.unwrap_or(policy.hourly_days),
            daily_days: self.daily_days.unwrap_or(policy.daily_days),
            newest: self.newest.unwrap_or(policy.newest),
        }
    }
}

/// What is set of how much disk the stores may use: fields of [`Budget`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Quota {
    store: Option<Size>,
    total: Option<Size>,
    free: Option<Size>,
}

impl Quota {
    fn over(&self, budget: Budget) -> Budget {
        Budget {
            store: self.store.map_or(budget.store, |size| size.0),
            total: self.total.map_or(budget.total, |size| size.0),
            free: self.free.map_or(budget.free, |size| size.0),
            ..budget
        }
    }
}

/// Settings of one root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootConfig {
    /// Quiet that ends a burst.
    pub settle: Duration,
    /// The longest that a burst is waited for.
    pub max_wait: Duration,
    /// Larger files are left out, bytes.
    pub max_file_size: u64,
    /// Ignored paths that are captured all the same.
    pub include: Vec<String>,
    /// Time between full scans; `None`: none.
    pub reconcile: Option<Duration>,
    /// The shortest time between looks where there are no events.
    pub poll_min: Duration,
    /// Whether agents' transcripts are kept.
    pub conversations: bool,
    /// Which checkpoints are kept.
    pub retention: Policy,
    /// How much disk they may use.
    pub quota: Budget,
}

/// All settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    defaults: RootConfig,
    roots: BTreeMap<PathBuf, Table>,
    /// How many roots may keep their tree in memory while idle.
    pub cache_roots: usize,
    /// Types of file systems that are polled, besides those that are known to have no events.
    pub poll_file_systems: Vec<u64>,
    /// Log filter.
    pub log: String,
}

/// What may stand at the top and in a `[root."PATH"]` table.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Table {
    settle_ms: Option<u64>,
    max_wait_ms: Option<u64>,
    max_file_size: Option<Size>,
    include: Option<Vec<Glob>>,
    reconcile_minutes: Option<u64>,
    poll_seconds_min: Option<u64>,
    conversations: Option<bool>,
    retention: Option<Retention>,
    quota: Option<Quota>,
}

/// As [`Table`], with what only stands at the top. (`serde(flatten)` and `deny_unknown_fields` exclude each other.)
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    settle_ms: Option<u64>,
    max_wait_ms: Option<u64>,
    max_file_size: Option<Size>,
    include: Option<Vec<Glob>>,
    reconcile_minutes: Option<u64>,
    poll_seconds_min: Option<u64>,
    conversations: Option<bool>,
    retention: Option<Retention>,
    quota: Option<Quota>,
    cache_roots: Option<usize>,
    poll_file_systems: Vec<FileSystem>,
    log: Option<String>,
    root: BTreeMap<PathBuf, toml::Spanned<Table>>,
}

impl Default for RootConfig {
    fn default() -> Self {
        Self {
            settle: Duration::from_millis(300),
            max_wait: Duration::from_millis(3000),
            max_file_size: 100 << 20,
            include: Vec::new(),
            reconcile: Some(Duration::from_secs(600)),
            poll_min: Duration::from_secs(2),
            conversations: true,
            retention: Policy::default(),
            quota: Budget {
                store: 5 << 30,
                total: 20 << 30,
                free: 2 << 30,
                ..Budget::default()
            },
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            defaults: RootConfig::default(),
            roots: BTreeMap::new(),
            cache_roots: 64,
            poll_file_systems: Vec::new(),
            log: "info".into(),
        }
    }
}

impl RootConfig {
    fn with(&self, table: &Table) -> Self {
        let ms = |value: Option<u64>, default| value.map_or(default, Duration::from_millis);
        Self {
            settle: ms(table.settle_ms, self.settle),
            max_wait: ms(table.max_wait_ms, self.max_wait),
            max_file_size: table.max_file_size.map_or(self.max_file_size, |size| size.0),
            include: match &table.include {
                Some(globs) => globs.iter().map(|glob| glob.0.clone()).collect(),
                None => self.include.clone(),
            },
            reconcile: table.reconcile_minutes.map_or(self.reconcile, |minutes| {
                (minutes > 0).then(|| Duration::from_secs(minutes.saturating_mul(60)))
            }),
            poll_min: table.poll_seconds_min.map_or(self.poll_min, Duration::from_secs),
            conversations: table.conversations.unwrap_or(self.conversations),
            retention: table
                .retention
                .as_ref()
                .map_or(self.retention, |set| set.over(self.retention)),
            quota: table
                .quota
                .as_ref()
                .map_or(self.quota, |set| set.over(self.quota)),
        }
    }

    fn check(&self) -> Result<(), &'static str> {
        if self.max_wait < self.settle {
            return Err("max_wait_ms is less than settle_ms");
        }
        if self.poll_min.is_zero() {
            return Err("poll_seconds_min is 0: it must be at least 1");
        }
        Ok(())
    }
}

impl Config {
    /// Reads the file; the defaults when there is none.
    ///
    /// # Errors
    /// [`Error::Broken`] with file and line when anything in it isn't understood.
    pub fn read(file: &Path) -> Result<Self> {
        match std::fs::read_to_string(file) {
            Ok(text) => Self::parse(&text, file),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(e) => Err(e).at(file),
        }
    }

    /// Settings of the root at `path`.
    pub fn for_root(&self, path: &Path) -> RootConfig {
        match self.roots.get(path) {
            Some(table) => self.defaults.with(table),
            None => self.defaults.clone(),
        }
    }

    fn parse(text: &str, path: &Path) -> Result<Self> {
        let broken = |at: Option<usize>, message: String| Error::Broken {
            path: path.to_owned(),
            line: at.map_or(1, |at| text[..at.min(text.len())].matches('\n').count() + 1),
            message,
            hint: HINT,
        };
        let file: File = toml::from_str(text)
            .map_err(|e| broken(e.span().map(|span| span.start), e.message().replace('\n', " ")))?;
        let top = Table {
            settle_ms: file.settle_ms,
            max_wait_ms: file.max_wait_ms,
            max_file_size: file.max_file_size,
            include: file.include,
            reconcile_minutes: file.reconcile_minutes,
            poll_seconds_min: file.poll_seconds_min,
            conversations: file.conversations,
            retention: file.retention,
            quota: file.quota,
        };
        let defaults = RootConfig::default().with(&top);
        defaults.check().map_err(|why| broken(None, why.into()))?;
        let mut roots = BTreeMap::new();
        for (root, table) in file.root {
            let at = Some(table.span().start);
            if root.is_relative() {
                return Err(broken(
                    at,
                    format!("[root.\"{}\"]: the path is not absolute", root.display()),
                ));
            }
            defaults
                .with(table.get_ref())
                .check()
                .map_err(|why| broken(at, why.into()))?;
            roots.insert(root, table.into_inner());
        }
        let default = Self::default();
        Ok(Self {
            defaults,
            roots,
            cache_roots: file.cache_roots.unwrap_or(default.cache_roots),
            poll_file_systems: file.poll_file_systems.into_iter().map(|kind| kind.0).collect(),
            log: file.log.unwrap_or(default.log),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config> {
        Config::parse(text, Path::new("/c.toml"))
    }

    #[test]
    fn an_absent_file_is_the_defaults_and_an_empty_one_too() {
        assert_eq!(
            Config::read(Path::new("/nowhere/config.toml")).unwrap(),
            Config::default()
        );
        assert_eq!(parse("").unwrap(), Config::default());
    }

    #[test]
    fn a_roots_table_overrides_the_top() {
        let config = parse(
            "settle_ms = 100\nmax_file_size = \"5 MiB\"\nreconcile_minutes = 0\n\n[quota]\nstore = \"1 GiB\"\n\n\
             [root.\"/p\"]\nsettle_ms = 7\ninclude = [\"*.log\"]\n",
        )
        .unwrap();
        let (other, p) = (config.for_root(Path::new("/q")), config.for_root(Path::new("/p")));
        assert_eq!((other.settle.as_millis(), p.settle.as_millis()), (100, 7));
        assert_eq!(
            (p.max_file_size, p.include.len(), other.include.len()),
            (5 << 20, 1, 0)
        );
        assert_eq!((p.reconcile, p.quota.store), (None, 1 << 30));
    }

    #[test]
    fn a_roots_retention_and_quota_override_what_they_name() {
        let config = parse(
            "[retention]\nnewest = 7\ndaily_days = 3\n[quota]\ntotal = \"9 GiB\"\n\
             [root.\"/p\".retention]\ndaily_days = 4\n[root.\"/p\".quota]\nstore = \"1 G\"\n",
        )
        .unwrap();
        let p = config.for_root(Path::new("/p"));
        assert_eq!(
            (
                p.retention.newest,
                p.retention.daily_days,
                p.retention.hourly_days
            ),
            (7, 4, 7)
        );
        assert_eq!(
            (p.quota.store, p.quota.total, p.quota.free),
            (1 << 30, 9 << 30, 2 << 30)
        );
        let q = config.for_root(Path::new("/q"));
        assert_eq!((q.retention.daily_days, q.quota.store), (3, 5 << 30));
    }

    #[test]
    fn errors_name_file_and_line() {
        for (text, line, word) in [
            ("settle_ms = 1\nsettel_ms = 2\n", 2, "settel_ms"),
            ("\n\nsettle_ms = \"x\"\n", 3, "invalid type"),
            ("max_file_size = 12\n", 1, "invalid type"),
            ("a = \n", 1, ""),
            ("[quota]\nstore = \"5 PB\"\n", 2, "units"),
            ("[root.\"/p\"]\nlog = \"x\"\n", 2, "log"),
            ("\n[root.\"p\"]\nsettle_ms = 1\n", 2, "absolute"),
            ("settle_ms = 9000\n", 1, "less than settle_ms"),
            ("poll_seconds_min = 0\n", 1, "at least 1"),
            ("poll_file_systems = [\"nfs\"]\n", 1, "no type"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("/c.toml:{line}: ")),
                "{text:?}: {error}"
            );
            assert!(error.contains(word), "{text:?}: {error}");
        }
    }

    #[test]
    fn sizes() {
        let size = |text: &str| Size::try_from(text.to_owned());
        for (text, bytes) in [
            ("0", 0),
            ("12", 12),
            ("1K", 1024),
            ("1 KiB", 1024),
            ("3MiB", 3 << 20),
            ("2 G", 2 << 30),
        ] {
            assert_eq!(size(text), Ok(Size(bytes)), "{text}");
        }
        for text in [
            "",
            "MiB",
            "1.5 MiB",
            "-1",
            "1 MB",
            "1 mib",
            "99999999999 GiB",
            "1 K iB",
        ] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
