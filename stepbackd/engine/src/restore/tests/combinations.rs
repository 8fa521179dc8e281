//! Every form that may stand on disk, by every rule, against everything that the target may have there, in every kind of
//! directory, before the plan and after it: what happens is what the table of the design says.

use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::os::unix::net::UnixListener;

use super::support::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    File,
    Link,
    EmptyDir,
    FullDir,
    Fifo,
    Socket,
    Git,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ignored {
    Never,
    Now,
    Then,
    Both,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Goal {
    File,
    Dir,
    Link,
    Fifo,
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// At the top.
    Top,
    /// In a directory that both have.
    InDir,
    /// In a directory that the target doesn't have.
    InNewDir,
    /// Below a path at which the target has a file, or a link.
    BelowFile,
    BelowLink,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cell {
    form: Form,
    ignored: Ignored,
    goal: Goal,
    place: Place,
    /// It appears when the plan has been made.
    late: bool,
}

const KEEP: &str = "KEEP\n";

impl Cell {
    fn path(self) -> &'static str {
        match self.place {
            Place::Top => "t",
            Place::InDir => "in/t",
            Place::InNewDir => "new/t",
            Place::BelowFile | Place::BelowLink => "p/t",
        }
    }

    /// Whether such a thing can be: below what isn't a directory, or in a directory that it doesn't have, the target has
    /// nothing.
    fn can_be(self) -> bool {
        matches!(self.place, Place::Top | Place::InDir) || self.goal == Goal::Nothing
    }

    fn all() -> Vec<Self> {
        use {Form as F, Goal as G, Ignored as I, Place as P};
        let mut all = Vec::new();
        for form in [
            F::File,
            F::Link,
            F::EmptyDir,
            F::FullDir,
            F::Fifo,
            F::Socket,
            F::Git,
        ] {
            for ignored in [I::Never, I::Now, I::Then, I::Both] {
                for goal in [G::File, G::Dir, G::Link, G::Fifo, G::Nothing] {
                    for place in [P::Top, P::InDir, P::InNewDir, P::BelowFile, P::BelowLink] {
                        for late in [false, true] {
                            let cell = Self {
                                form,
                                ignored,
                                goal,
                                place,
                                late,
                            };
                            if cell.can_be() {
                                all.push(cell);
                            }
                        }
                    }
                }
            }
        }
        all
    }

    fn make_goal(self, bench: &Bench) {
        bench.write("other", "v1");
        bench.write("in/beside", "v1");
        let at = self.path();
        match self.goal {
            Goal::File => bench.write(at, "goal"),
            Goal::Dir => bench.write(&format!("{at}/child"), "goal"),
            Goal::Link => symlink("goal", bench.at(at)).unwrap(),
            Goal::Fifo => nix::unistd::mkfifo(&bench.at(at), nix::sys::stat::Mode::S_IRWXU).unwrap(),
            Goal::Nothing => {}
        }
        match self.place {
            Place::BelowFile => bench.write("p", "goal"),
            Place::BelowLink => symlink("goal", bench.at("p")).unwrap(),
            Place::Top | Place::InDir | Place::InNewDir => {}
        }
    }

    fn make_thing(self, bench: &Bench) {
        let at = self.path();
        match self.form {
            Form::File => bench.write(at, KEEP),
            Form::Link => symlink(KEEP, bench.at(at)).unwrap(),
            Form::EmptyDir => fs::create_dir(bench.at(at)).unwrap(),
            Form::FullDir => bench.write(&format!("{at}/x/y"), KEEP),
            Form::Fifo => nix::unistd::mkfifo(&bench.at(at), nix::sys::stat::Mode::S_IRWXU).unwrap(),
            Form::Socket => drop(UnixListener::bind(bench.at(at)).unwrap()),
            Form::Git => bench.write(&format!("{at}/.git/HEAD"), KEEP),
        }
    }

    /// Whether the thing is there with all its bytes.
    fn stands(self, bench: &Bench) -> bool {
        let at = bench.at(self.path());
        let is = |kind: fn(&fs::FileType) -> bool| {
            fs::symlink_metadata(&at).is_ok_and(|stat| kind(&stat.file_type()))
        };
        match self.form {
            Form::File => is(fs::FileType::is_file) && fs::read(&at).unwrap() == KEEP.as_bytes(),
            Form::Link => fs::read_link(&at).is_ok_and(|target| target.as_os_str() == KEEP),
            Form::EmptyDir => is(fs::FileType::is_dir),
            Form::FullDir => fs::read(at.join("x/y")).is_ok_and(|bytes| bytes == KEEP.as_bytes()),
            Form::Fifo => is(|kind| kind.is_fifo()),
            Form::Socket => is(|kind| kind.is_socket()),
            Form::Git => fs::read(at.join(".git/HEAD")).is_ok_and(|bytes| bytes == KEEP.as_bytes()),
        }
    }

    /// Whether it may go for the target's sake: it is known, or its bytes can be captured first.
    fn may_go(self) -> bool {
        !self.late && !matches!(self.form, Form::Socket | Form::Git)
    }

    /// Whether something else is to stand here.
    fn in_the_way(self) -> bool {
        self.goal != Goal::Nothing || matches!(self.place, Place::BelowFile | Place::BelowLink)
    }

    /// Whether it stays. `None`: both are right, since both sides have the same kind there, or it is only a directory.
    fn stays(self) -> Option<bool> {
        let is_dir = matches!(self.form, Form::EmptyDir | Form::FullDir);
        if !self.may_go() {
            // What appears where the target has the same kind of thing may be taken for it.
            let same = matches!(
                (self.form, self.goal),
                (Form::Fifo, Goal::Fifo) | (Form::EmptyDir, _)
            );
            return if self.late && same { None } else { Some(true) };
        }
        if self.in_the_way() {
            return match (self.form, self.goal) {
                (Form::EmptyDir, Goal::Dir) | (Form::Fifo, Goal::Fifo) => None,
                // Both have a directory: what is ignored in it is in nobody's way.
                (Form::FullDir, Goal::Dir) => Some(self.ignored != Ignored::Never),
                _ => Some(false),
            };
        }
        match (self.form, self.ignored) {
            (_, Ignored::Never) => Some(false),
            // A FIFO that is captured can be made again. One that is ignored is looked for only in what goes.
            (Form::Fifo, Ignored::Then) => Some(false),
            (Form::Fifo, _) => None,
            _ if is_dir && self.form == Form::EmptyDir => None,
            _ => Some(true),
        }
    }
}

fn check(cell: Cell) {
    let what = format!("{cell:?}");
    // In memory where that can be had: there are hundreds, and nothing here is about the disk.
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let bench = Bench::below(dir.unwrap());
    cell.make_goal(&bench);
    let target = bench.capture();
    for name in ["t", "p", "in/t"] {
        let at = bench.at(name);
        if fs::symlink_metadata(&at).is_ok_and(|stat| stat.is_dir()) {
            fs::remove_dir_all(at).unwrap();
        } else {
            let _ = fs::remove_file(at);
        }
    }
    if let Some((parent, _)) = cell.path().rsplit_once('/') {
        fs::create_dir_all(bench.at(parent)).unwrap();
        bench.write(&format!("{parent}/beside"), "v2");
    }
    bench.write("other", "v2");
    if matches!(cell.ignored, Ignored::Now | Ignored::Both) {
        bench.ignore(cell.path());
    }
    if matches!(cell.ignored, Ignored::Then | Ignored::Both) {
        bench.ignored_then.borrow_mut().insert(path(cell.path()));
    }
    if !cell.late {
        cell.make_thing(&bench);
        if cell.form == Form::Socket && !matches!(cell.ignored, Ignored::Now | Ignored::Both) {
            bench.unknown_now(cell.path(), crate::node::Reason::Special);
        }
    }
    let plan = bench.plan(&target);
    if cell.late {
        cell.make_thing(&bench);
    }
    let applied = bench.apply(&plan).unwrap();
    let stands = cell.stands(&bench);
    if let Some(stays) = cell.stays() {
        assert_eq!(stands, stays, "{what}: {:?}", kept(&applied.kept));
    }
    assert_eq!(bench.read("other"), "v1", "{what}");
    assert_eq!(fs::read(bench.at("in/beside")).unwrap(), b"v1", "{what}");
    if !stands && cell.form == Form::File {
        // What is gone is in the store.
        let oid = crate::oid::Oid::of(crate::oid::ObjectKind::Blob, KEEP.as_bytes());
        assert!(bench.store.has(oid).unwrap(), "{what}: lost");
    }
    // What stays in the way of something is named.
    let stays_in_the_way = stands && cell.in_the_way() && cell.stays() == Some(true);
    let both_are_dirs =
        cell.goal == Goal::Dir && matches!(cell.form, Form::FullDir | Form::Git | Form::EmptyDir);
    if stays_in_the_way && !both_are_dirs {
        assert!(!applied.kept.is_empty(), "{what}: stays, and nothing is said");
    }
    if cell.stays() == Some(false) {
        assert_eq!(kept(&applied.kept), [], "{what}");
    }
    bench.assert_clean();
}

#[test]
fn every_form_by_every_rule_against_every_target_does_what_the_table_says() {
    let all = Cell::all();
    for cell in &all {
        check(*cell);
    }
    println!("{} combinations", all.len());
    assert!(all.len() > 600);
}
