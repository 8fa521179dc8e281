//! The table: each row against its target, as text and as Markdown.

use std::fmt::Write as _;

use crate::samples::Samples;

/// In what a row is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Milliseconds.
    Ms,
    /// Mebibytes.
    MiB,
    /// Things.
    Count,
}

/// What is wanted of a row.
#[derive(Debug, Clone, Copy)]
pub enum Target {
    /// The peer takes at least so many times as long.
    Faster(f64),
    /// Ours is at most so many times the peer's.
    AtMost(f64),
    /// The median is at most so much.
    Below(f64),
    /// Of a hundred, ninety-nine are at most so much.
    P99(f64),
    /// Only shown.
    None,
}

/// One line of the table.
#[derive(Debug, Clone)]
pub struct Row {
    /// What was done.
    pub work: String,
    /// What of it is measured.
    pub unit: Unit,
    /// Ours.
    pub ours: Samples,
    /// The other's name and measurements.
    pub peer: Option<(String, Samples)>,
    /// What is wanted.
    pub target: Target,
}

/// One line in a picture: a name, and values by number of files.
#[derive(Debug, Clone)]
pub struct Line {
    /// Which picture.
    pub picture: &'static str,
    /// Whose.
    pub name: String,
    /// Number of files and value.
    pub points: Vec<(f64, f64)>,
}

/// All that a run found.
#[derive(Debug, Default)]
pub struct Report {
    pub rows: Vec<Row>,
    pub lines: Vec<Line>,
    /// What was skipped, and why.
    pub notes: Vec<String>,
}

impl Report {
    /// Adds a row, and shows it at once.
    pub fn row(
        &mut self,
        work: impl Into<String>,
        unit: Unit,
        ours: &Samples,
        peer: Option<(&str, &Samples)>,
        target: Target,
    ) {
        if ours.is_empty() || peer.is_some_and(|(_, samples)| samples.is_empty()) {
            return;
        }
        let row = Row {
            work: work.into(),
            unit,
            ours: ours.clone(),
            peer: peer.map(|(name, samples)| (name.to_owned(), samples.clone())),
            target,
        };
        println!("{}", row.cells().join(" | "));
        self.rows.push(row);
    }

    /// Adds a point to a picture.
    pub fn point(&mut self, picture: &'static str, name: &str, files: usize, samples: &Samples) {
        if samples.is_empty() {
            return;
        }
        let point = (files as f64, samples.median());
        match self
            .lines
            .iter_mut()
            .find(|line| line.picture == picture && line.name == name)
        {
            Some(line) => line.points.push(point),
            None => self.lines.push(Line {
                picture,
                name: name.to_owned(),
                points: vec![point],
            }),
        }
    }

    /// Says what wasn't measured, and why.
    pub fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        println!("note: {note}");
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// The table in Markdown.
    pub fn markdown(&self) -> String {
        let mut text =
            String::from("| work | stepback | other | ratio | target | met |\n|---|---|---|---|---|---|\n");
        for row in &self.rows {
            let _ = writeln!(text, "| {} |", row.cells().join(" | "));
        }
        text
    }
}

impl Row {
    fn cells(&self) -> [String; 6] {
        let peer = self.peer.as_ref();
        [
            self.work.clone(),
            show(&self.ours, self.unit),
            peer.map_or_else(String::new, |(name, samples)| {
                format!("{name}: {}", show(samples, self.unit))
            }),
            peer.map_or_else(String::new, |(_, samples)| self.ratio(samples)),
            match self.target {
                Target::Faster(times) => format!("≥ {times}x faster"),
                Target::AtMost(times) => format!("≤ {times}x"),
                Target::Below(limit) => format!("≤ {}", value(limit, self.unit)),
                Target::P99(limit) => format!("p99 ≤ {}", value(limit, self.unit)),
                Target::None => String::new(),
            },
            self.met()
                .map_or("", |met| if met { "yes" } else { "**no**" })
                .to_owned(),
        ]
    }

    /// In the direction in which the target is meant; else the one above 1.
    fn ratio(&self, peer: &Samples) -> String {
        let slower = peer.over(&self.ours);
        let faster = match self.target {
            Target::Faster(_) => true,
            Target::AtMost(_) => false,
            _ => slower.median() >= 1.0,
        };
        let (ratio, word) = match faster {
            true => (slower, "x faster"),
            false => (self.ours.over(peer), "x"),
        };
        let (low, high) = ratio.spread();
        let spread = match ratio.len() {
            1 => String::new(),
            _ => format!(" ({}–{})", number(low), number(high)),
        };
        format!("{}{word}{spread}", number(ratio.median()))
    }

    fn met(&self) -> Option<bool> {
        let peer = self.peer.as_ref().map(|(_, samples)| samples);
        match self.target {
            Target::Faster(times) => Some(peer?.over(&self.ours).median() >= times),
            Target::AtMost(times) => Some(self.ours.over(peer?).median() <= times),
            Target::Below(limit) => Some(self.ours.median() <= limit),
            Target::P99(limit) => Some(self.ours.percentile(99.0) <= limit),
            Target::None => None,
        }
    }
}

fn show(samples: &Samples, unit: Unit) -> String {
    let (low, high) = samples.spread();
    match samples.len() {
        1 => value(samples.median(), unit),
        n if n >= 100 => format!(
            "{} (p99 {})",
            value(samples.median(), unit),
            number(samples.percentile(99.0))
        ),
        _ => format!(
            "{} ({}–{})",
            value(samples.median(), unit),
            number(low),
            number(high)
        ),
    }
}

fn value(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Ms => format!("{} ms", number(value)),
        Unit::MiB => format!("{} MiB", number(value)),
        Unit::Count => number(value),
    }
}

/// Three digits that mean something.
fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 || v == 0.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}
