//! The user's settings: typed, strict, with an override table for each root.

mod values;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use stepback_engine::engine::Budget;
use stepback_engine::retention::Policy;
use toml::Spanned;

pub use self::values::Size;
use self::values::{CacheRoots, FileSystem, Filter, Glob, Millis, Minutes, Quota, Retention, Seconds};
use crate::error::{At, Error, Result};
use crate::paths::Paths;

const HINT: &str = "mend that line; the README lists the settings";

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
    settle_ms: Option<Spanned<Millis>>,
    max_wait_ms: Option<Spanned<Millis>>,
    max_file_size: Option<Size>,
    include: Option<Vec<Glob>>,
    reconcile_minutes: Option<Minutes>,
    poll_seconds_min: Option<Spanned<Seconds>>,
    conversations: Option<bool>,
    retention: Option<Retention>,
    quota: Option<Quota>,
}

/// As [`Table`], with what only stands at the top. (`serde(flatten)` and `deny_unknown_fields` exclude each other.)
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    settle_ms: Option<Spanned<Millis>>,
    max_wait_ms: Option<Spanned<Millis>>,
    max_file_size: Option<Size>,
    include: Option<Vec<Glob>>,
    reconcile_minutes: Option<Minutes>,
    poll_seconds_min: Option<Spanned<Seconds>>,
    conversations: Option<bool>,
    retention: Option<Retention>,
    quota: Option<Quota>,
    cache_roots: Option<CacheRoots>,
    poll_file_systems: Vec<FileSystem>,
    log: Option<Filter>,
    root: BTreeMap<PathBuf, Spanned<Table>>,
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
        let ms =
            |value: &Option<Spanned<Millis>>, default| value.as_ref().map_or(default, |ms| ms.get_ref().0);
        Self {
            settle: ms(&table.settle_ms, self.settle),
            max_wait: ms(&table.max_wait_ms, self.max_wait),
            max_file_size: table.max_file_size.map_or(self.max_file_size, |size| size.0),
            include: match &table.include {
                Some(globs) => globs.iter().map(|glob| glob.0.clone()).collect(),
                None => self.include.clone(),
            },
            reconcile: table.reconcile_minutes.map_or(self.reconcile, |minutes| {
                (!minutes.0.is_zero()).then_some(minutes.0)
            }),
            poll_min: table
                .poll_seconds_min
                .as_ref()
                .map_or(self.poll_min, |seconds| seconds.get_ref().0),
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

    /// What doesn't fit together, and the place in the file of what is to blame in `table`, which made these settings.
    fn check(&self, table: &Table) -> Result<(), (Option<usize>, &'static str)> {
        let at = |key: &Option<Spanned<Millis>>| key.as_ref().map(|key| key.span().start);
        if self.max_wait < self.settle {
            let at = at(&table.max_wait_ms).or_else(|| at(&table.settle_ms));
            return Err((at, "max_wait_ms is less than settle_ms"));
        }
        if self.poll_min.is_zero() {
            let at = table.poll_seconds_min.as_ref().map(|key| key.span().start);
            return Err((at, "poll_seconds_min is 0: it must be at least 1"));
        }
        Ok(())
    }
}

impl Config {
    /// Reads the file; the defaults when there is none, unless the user named it.
    ///
    /// # Errors
    /// [`Error::Broken`] with file and line when anything in it isn't understood; [`Error::Variable`] when STEPBACK_CONFIG names
    /// a file that isn't there.
    pub fn read(paths: &Paths) -> Result<Self> {
        let file = &paths.config;
        match stepback_engine::read_settings(file) {
            Ok(text) => Self::parse(&text, file),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && paths.config_is_named => {
                Err(Error::Variable {
                    message: format!("STEPBACK_CONFIG: there is no file {}", file.display()),
                    hint: "make that file (it may be empty), or unset STEPBACK_CONFIG",
                })
            }
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
        defaults.check(&top).map_err(|(at, why)| broken(at, why.into()))?;
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
                .check(table.get_ref())
                .map_err(|(key, why)| broken(key.or(at), why.into()))?;
            roots.insert(root, table.into_inner());
        }
        let default = Self::default();
        Ok(Self {
            defaults,
            roots,
            cache_roots: file.cache_roots.map_or(default.cache_roots, |max| max.0),
            poll_file_systems: file.poll_file_systems.into_iter().map(|kind| kind.0).collect(),
            log: file.log.map_or(default.log, |filter| filter.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::values::YEAR;
    use super::*;

    fn parse(text: &str) -> Result<Config> {
        Config::parse(text, Path::new("/c.toml"))
    }

    #[test]
    fn an_absent_file_is_the_defaults_and_an_empty_one_too() {
        let mut paths = Paths {
            state: "/nowhere".into(),
            socket: "/nowhere/s".into(),
            config: "/nowhere/config.toml".into(),
            config_is_named: false,
        };
        assert_eq!(Config::read(&paths).unwrap(), Config::default());
        paths.config_is_named = true;
        let error = Config::read(&paths).unwrap_err();
        assert!(error.to_string().contains("/nowhere/config.toml"), "{error}");
        assert_eq!(error.exit_code(), 78);
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
            ("\nlog = \"loud\"\n", 2, "loud"),
            ("\n\nmax_wait_ms = 1\n", 3, "less than settle_ms"),
            ("cache_roots = 2\nsettle_ms = 9000\n", 2, "less than settle_ms"),
            (
                "[quota]\n[root.\"/p\"]\n\nsettle_ms = 9000\n",
                4,
                "less than settle_ms",
            ),
            ("\npoll_seconds_min = 0\n", 2, "at least 1"),
            ("\nsettle_ms = 9223372036854775807\n", 2, "a year"),
            ("\nmax_wait_ms = 31536000001\n", 2, "a year"),
            ("\nreconcile_minutes = 525601\n", 2, "a year"),
            (
                "\n[root.\"/p\"]\nreconcile_minutes = 9223372036854775807\n",
                3,
                "a year",
            ),
            ("\npoll_seconds_min = 31536001\n", 2, "a year"),
            ("\ncache_roots = 9223372036854775807\n", 2, "at most"),
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
    fn the_longest_times_still_fit_the_clock() {
        let config = parse(
            "settle_ms = 31536000000\nmax_wait_ms = 31536000000\nreconcile_minutes = 525600\npoll_seconds_min = 31536000\n",
        )
        .unwrap();
        let root = config.for_root(Path::new("/p"));
        let now = std::time::Instant::now();
        for time in [root.settle, root.max_wait, root.reconcile.unwrap(), root.poll_min] {
            assert_eq!(time, YEAR);
            assert!(now.checked_add(time).is_some());
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
