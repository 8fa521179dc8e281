//! The directories that everything is measured on.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use stepback_tests::{Random, Sandbox};

use crate::peers::run;

/// Files of one directory.
const FILES_A_DIR: usize = 90;
/// Bytes of one file.
const FILE_BYTES: usize = 4096;

/// A directory with so many files, committed in git, and an ignored `node_modules` beside.
#[derive(Debug, Clone)]
pub struct Tree {
    pub path: PathBuf,
    pub files: usize,
}

impl Tree {
    /// Makes it.
    pub fn make(sandbox: &Sandbox, name: &str, files: usize, ignored_dirs: usize) -> Self {
        let tree = Self {
            path: sandbox.dir().join("work").join(name),
            files,
        };
        fs::create_dir_all(&tree.path).expect("own directory");
        let mut random = Random::seeded(files as u64);
        for file in 0..files {
            let path = tree.file(file);
            if file % FILES_A_DIR == 0 {
                fs::create_dir_all(path.parent().expect("has one")).expect("own directory");
            }
            fs::write(&path, text(&mut random, FILE_BYTES)).expect("own file");
        }
        fs::write(tree.path.join(".gitignore"), "node_modules/\n/build/\n").expect("own file");
        for dir in 0..ignored_dirs {
            let path = tree.path.join(format!("node_modules/{:03}/{dir}", dir / 100));
            fs::create_dir_all(path).expect("own directory");
        }
        script(
            sandbox,
            &tree.path,
            "git init -q && git add -A && git commit -q -m start && git status >/dev/null",
        );
        nix::unistd::sync();
        tree
    }

    /// A copy with its own repository.
    pub fn copy(&self, sandbox: &Sandbox, name: &str) -> Self {
        let path = sandbox.dir().join("work").join(name);
        script(
            sandbox,
            sandbox.dir(),
            &format!(
                "mkdir '{p}' && cd '{}' && find . -mindepth 1 -maxdepth 1 ! -name node_modules \
                 -exec cp -a {{}} '{p}' ';' && cd '{p}' && git status >/dev/null",
                self.path.display(),
                p = path.display()
            ),
        );
        nix::unistd::sync();
        Self {
            path,
            files: self.files,
        }
    }

    /// The path of a file by its number.
    pub fn file(&self, file: usize) -> PathBuf {
        self.path.join(self.name(file))
    }

    /// The same, relative.
    pub fn name(&self, file: usize) -> String {
        let dir = file / FILES_A_DIR;
        format!("{:03}/{:02}/{file}.txt", dir / 40, dir % 40)
    }

    /// Changes one file; the size stays.
    pub fn edit(&self, file: usize, seed: u64) {
        let mut random = Random::seeded(seed);
        fs::write(self.file(file), text(&mut random, FILE_BYTES)).expect("own file");
    }
}

/// Runs a shell script, for as long as it takes: a million files are minutes of git's.
fn script(sandbox: &Sandbox, dir: &Path, script: &str) {
    run(sandbox.command("sh", dir).args(["-ec", script]));
}

/// Words, about as compressible as source code is.
pub fn text(random: &mut Random, bytes: usize) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes + 16);
    while text.len() < bytes {
        let number = random.next();
        match number % 4 {
            0 => text.extend_from_slice(format!("let v{} = ", number >> 52).as_bytes()),
            1 => text.extend_from_slice(format!("{:x}", number >> 36).as_bytes()),
            2 => text.extend_from_slice(b" return self."),
            _ => text.extend_from_slice(&[b';', b'\n', b' ', b' ', b'a' + (number >> 59) as u8 % 26]),
        }
    }
    text.truncate(bytes);
    text
}

/// Takes a directory away with all in it. Nothing is deleted before the end: for minutes after a deletion ext4 passes over
/// each inode that it freed whenever a file is made nearby, which would slow all that is measured later, ours and the peers'.
pub fn remove(path: &Path) {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    if path.exists() {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        fs::create_dir_all(aside()).expect("own directory");
        fs::rename(path, aside().join(number.to_string())).expect("on the same file system");
    }
}

/// Deletes all that was taken away.
pub fn delete_removed() {
    if aside().exists() {
        fs::remove_dir_all(aside()).expect("own directory");
    }
}

fn aside() -> PathBuf {
    std::env::temp_dir().join(format!("stepback-bench-{}", std::process::id()))
}
