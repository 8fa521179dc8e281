//! `diff --stat` and `diff --name-status`, as git prints them.

use owo_colors::Style;
use stepback_proto::DiffFile;

use super::path::shown;
use super::{count, paint};

/// Columns to fill when nothing says how wide the terminal is.
const WIDTH_DEFAULT: usize = 80;

/// A line per file with a bar of its changes, and a line of sums.
pub fn stat(files: &[DiffFile], color: bool) -> String {
    if files.is_empty() {
        return String::new();
    }
    let names: Vec<String> = files.iter().map(|f| shown(&f.path)).collect();
    let name_width = names.iter().map(|n| n.chars().count()).max().unwrap_or(0);
    let most = files
        .iter()
        .map(|f| f.insertions + f.deletions)
        .max()
        .unwrap_or(0);
    let number_width = most
        .to_string()
        .len()
        .max(if files.iter().any(|f| f.binary) { 3 } else { 1 });
    let room = WIDTH_DEFAULT
        .saturating_sub(name_width + number_width + 5)
        .max(10) as u64;
    let mut out = String::new();
    for (file, name) in files.iter().zip(&names) {
        let pad = " ".repeat(name_width - name.chars().count());
        if file.binary {
            out += &format!(" {name}{pad} | {:>number_width$}\n", "Bin");
            continue;
        }
        let total = file.insertions + file.deletions;
        let (plus, minus) = bar(file.insertions, file.deletions, most, room);
        let bar = paint(color, Style::new().green(), &"+".repeat(plus))
            + &paint(color, Style::new().red(), &"-".repeat(minus));
        out += format!(" {name}{pad} | {total:>number_width$} {bar}").trim_end();
        out.push('\n');
    }
    out + &sums(files)
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
            stat(&files, false),
            " src/a  |   4 +++-\n b      | Bin\n run.sh |   0\n 3 files changed, 3 insertions(+), 1 deletion(-)\n"
        );
        assert_eq!(stat(&[], false), "");
        assert_eq!(name_status(&files[..1]), "M\tsrc/a\n");
    }

    #[test]
    fn long_bars_are_scaled_and_small_ones_stay_seen() {
        assert_eq!(bar(1000, 1, 1001, 50), (49, 1));
        assert_eq!(bar(0, 0, 1001, 50), (0, 0));
    }
}
