//! `diff --stat` and `diff --name-status`, as git prints them.

use owo_colors::Style;
use stepback_proto::DiffFile;

use super::path::shown;
use super::{count, paint};

/// The least that is left for bars, in columns.
const BAR_MIN: usize = 6;

/// What stands in a line beside name, number and bar: a space, ` | `, a space, and one left free.
const BETWEEN: usize = 6;

/// A line per file with a bar of its changes, and a line of sums, in so many columns. Long names lose their beginning.
pub fn stat(files: &[DiffFile], width: usize, color: bool) -> String {
    if files.is_empty() {
        return String::new();
    }
    let names: Vec<String> = files.iter().map(|f| shown(&f.path)).collect();
    let most = files
        .iter()
        .map(|f| f.insertions + f.deletions)
        .max()
        .unwrap_or(0);
    let number_width = most
        .to_string()
        .len()
        .max(if files.iter().any(|f| f.binary) { 3 } else { 1 });
    let longest = names.iter().map(|n| n.chars().count()).max().unwrap_or(0);
    let (name_width, room) = columns(
        width,
        longest,
        number_width,
        usize::try_from(most).unwrap_or(usize::MAX),
    );
    let names: Vec<String> = names.iter().map(|n| shortened(n, name_width)).collect();
    let mut out = String::new();
    for (file, name) in files.iter().zip(&names) {
        let pad = " ".repeat(name_width.saturating_sub(name.chars().count()));
        if file.binary {
            out += &format!(" {name}{pad} | {:>number_width$}\n", "Bin");
            continue;
        }
        let total = file.insertions + file.deletions;
        let (plus, minus) = bar(file.insertions, file.deletions, most, room as u64);
        let bar = paint(color, Style::new().green(), &"+".repeat(plus))
            + &paint(color, Style::new().red(), &"-".repeat(minus));
        out += format!(" {name}{pad} | {total:>number_width$} {bar}").trim_end();
        out.push('\n');
    }
    out + &sums(files)
}

/// Columns for names and for bars. Where both don't fit, bars give way down to three eighths of the line, then names.
fn columns(width: usize, name: usize, number: usize, bar: usize) -> (usize, usize) {
    let rest = width.saturating_sub(number + BETWEEN);
    if name.saturating_add(bar) <= rest {
        return (name, bar);
    }
    let least = bar.min((width * 3 / 8).saturating_sub(number + BETWEEN).max(BAR_MIN));
    let name = name.min(rest.saturating_sub(least).max(1));
    (name, rest.saturating_sub(name).max(least))
}

/// The end of a name that is too long, from a slash on if there is one: `.../src/main.rs`.
fn shortened(name: &str, width: usize) -> String {
    let length = name.chars().count();
    if length <= width {
        return name.to_owned();
    }
    let tail: String = name.chars().skip(length - width.saturating_sub(3)).collect();
    let tail = tail.find('/').map_or(tail.as_str(), |at| &tail[at..]);
    format!("...{tail}")
}

/// Lengths of the two halves of a bar; anything that changed has at least one mark.
fn bar(plus: u64, minus: u64, most: u64, room: u64) -> (usize, usize) {
    let scale = |n: u64| match n {
        0 => 0,
        n if most <= room => n,
        n => (n * room / most).max(1),
    };
    (
        usize::try_from(scale(plus)).unwrap_or(0),
        usize::try_from(scale(minus)).unwrap_or(0),
    )
}

fn sums(files: &[DiffFile]) -> String {
    let plus: u64 = files.iter().map(|f| f.insertions).sum();
    let minus: u64 = files.iter().map(|f| f.deletions).sum();
    let mut out = format!(" {} changed", count(files.len() as u64, "file", "files"));
    if plus > 0 || minus == 0 {
        out += &format!(", {}", count(plus, "insertion(+)", "insertions(+)"));
    }
    if minus > 0 || plus == 0 {
        out += &format!(", {}", count(minus, "deletion(-)", "deletions(-)"));
    }
    out + "\n"
}

/// A line per file: its letter, a tab, its path.
pub fn name_status(files: &[DiffFile]) -> String {
    files
        .iter()
        .map(|f| format!("{}\t{}\n", f.status.letter(), shown(&f.path)))
        .collect()
}

#[cfg(test)]
mod tests {
    use stepback_proto::{ChangeKind, WirePath};

    use super::*;

    fn file(path: &str, insertions: u64, deletions: u64, binary: bool) -> DiffFile {
        let path = WirePath(path.as_bytes().to_vec());
        let status = ChangeKind::Modified;
        DiffFile {
            path,
            status,
            old_mode: None,
            new_mode: None,
            insertions,
            deletions,
            binary,
        }
    }

    #[test]
    fn a_stat_reads_as_that_of_git() {
        let files = [
            file("src/a", 3, 1, false),
            file("b", 0, 0, true),
            file("run.sh", 0, 0, false),
        ];
        assert_eq!(
            stat(&files, 80, false),
            " src/a  |   4 +++-\n b      | Bin\n run.sh |   0\n 3 files changed, 3 insertions(+), 1 deletion(-)\n"
        );
        assert_eq!(stat(&[], 80, false), "");
        assert_eq!(name_status(&files[..1]), "M\tsrc/a\n");
    }

    #[test]
    fn long_names_lose_their_beginning_and_no_line_is_too_long() {
        let long = format!("{}/last/name.rs", "deep/".repeat(30).trim_end_matches('/'));
        let text = stat(&[file(&long, 900, 100, false), file("b", 1, 0, false)], 60, false);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.iter().all(|l| l.chars().count() <= 60), "{text}");
        assert!(
            lines[0].starts_with(" .../") && lines[0].contains("/last/name.rs "),
            "{text}"
        );
        assert!(
            lines[1].starts_with(" b ") && lines[1].ends_with("|    1 +"),
            "{text}"
        );
        assert_eq!(shortened("abcdefghij", 6), "...hij");
        assert_eq!(shortened("some/where/x", 9), ".../x");
    }

    #[test]
    fn long_bars_are_scaled_and_small_ones_stay_seen() {
        assert_eq!(bar(1000, 1, 1001, 50), (49, 1));
        assert_eq!(bar(0, 0, 1001, 50), (0, 0));
    }
}
