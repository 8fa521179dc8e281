//! Interrupted operations, with the interruption made by hand.

use std::fs;

use super::support::*;
use crate::restore::Outcome;
use crate::restore::journal::{self, Generation, Journal};

#[test]
fn nothing_to_recover_is_nothing() {
    assert_eq!(Bench::new().recover(false).unwrap(), None);
}

#[test]
fn a_journal_alone_is_finished_or_undone() {
    for undo in [false, true] {
        let bench = Bench::new();
        bench.write("a", "v1");
        bench.write("d/b", "v1");
        let target = bench.capture();
        bench.write("a", "v2");
        fs::remove_dir_all(bench.at("d")).unwrap();
        bench.write("d", "file");
        let before = bench.capture();
        let plan = bench.plan(&target);
        let journal = Journal::new(header(plan.operation), plan, Generation::default());
        journal::begin(&bench.journal_dir, &journal).unwrap();
        assert!(bench.is_unfinished());
        let error = bench.apply(&bench.plan(&target)).unwrap_err();
        assert!(
            matches!(error, crate::Error::Unfinished { target: 7, .. }),
            "{error}"
        );
        let recovered = bench.recover(undo).unwrap().unwrap();
        assert_eq!(
            recovered.outcome,
            if undo { Outcome::Undone } else { Outcome::Finished }
        );
        assert_eq!(recovered.header, header(crate::restore::OperationKind::Rewind));
        assert_eq!(bench.capture(), if undo { before } else { target });
        assert_eq!(bench.recover(undo).unwrap(), None);
        bench.assert_clean();
    }
}

#[test]
fn a_path_that_holds_neither_version_is_kept() {
    let bench = Bench::new();
    bench.write("a", "v1");
    bench.write("b", "v1");
    let target = bench.capture();
    bench.write("a", "v2");
    bench.write("b", "v2");
    bench.write("c", "v2");
    let plan = bench.plan(&target);
    journal::begin(
        &bench.journal_dir,
        &Journal::new(header(plan.operation), plan, Generation::default()),
    )
    .unwrap();
    bench.write("a", "by hand");
    fs::remove_file(bench.at("b")).unwrap();
    let recovered = bench.recover(false).unwrap().unwrap();
    assert_eq!(
        kept(&recovered.kept),
        [
            ("a".into(), "it holds neither of the two recorded versions".into()),
            ("b".into(), "it is gone".into())
        ]
    );
    assert_eq!(bench.read("a"), "by hand");
    assert!(!bench.at("b").exists() && !bench.at("c").exists());
    bench.assert_clean();
}

#[test]
fn a_flipped_bit_of_a_journal_is_noticed_and_one_without_a_checksum_is_read() {
    let bench = Bench::new();
    bench.write("a", "v1");
    let target = bench.capture();
    bench.write("a", "v2");
    let plan = bench.plan(&target);
    let journal = Journal::new(header(plan.operation), plan, Generation::default());
    journal::begin(&bench.journal_dir, &journal).unwrap();
    let file = bench.journal_dir.join("journal");
    let text = fs::read_to_string(&file).unwrap();
    // Still JSON, and still a journal: of another target.
    assert!(text.contains("\"target\":7,"), "{text}");
    fs::write(&file, text.replace("\"target\":7,", "\"target\":5,")).unwrap();
    let error = bench.recover(false).unwrap_err();
    assert!(matches!(error, crate::Error::DamagedRecord { .. }), "{error}");

    let (object, _) = text.split_once(",\"sha1\":").unwrap();
    fs::write(&file, format!("{object}}}")).unwrap();
    assert!(bench.recover(false).unwrap().is_some());
    assert_eq!(bench.capture(), target);
}

#[test]
fn a_damaged_journal_is_named_and_nothing_is_taken_for_done() {
    let bench = Bench::new();
    fs::write(bench.journal_dir.join("journal"), "{\"version\":1,").unwrap();
    let error = bench.recover(false).unwrap_err();
    assert!(error.to_string().contains("journal"), "{error}");
    assert!(bench.journal_dir.join("journal").exists());
}
