//! What is left out when no rule of the user's says anything.

/// Names and whether only a directory of that name is meant.
const LIST: [(&str, bool); 12] = [
    ("node_modules", true),
    ("target", true),
    (".venv", true),
    ("venv", true),
    ("__pycache__", true),
    (".tox", true),
    (".mypy_cache", true),
    (".pytest_cache", true),
    (".gradle", true),
    (".next", true),
    (".cache", true),
    (".DS_Store", false),
];

/// Which pattern leaves out an entry of this name. `cargo`: a `Cargo.toml` is beside it.
pub(super) fn find(name: &[u8], is_dir: bool, cargo: bool) -> Option<usize> {
    LIST.iter().position(|(listed, only_dir)| {
        listed.as_bytes() == name && (is_dir || !only_dir) && (cargo || *listed != "target")
    })
}

/// Whether a directory of this name may be left out.
pub(super) fn names(name: &[u8]) -> bool {
    LIST.iter().any(|(listed, _)| listed.as_bytes() == name)
}

/// The pattern as people write it.
pub(super) fn pattern(index: usize) -> Option<String> {
    LIST.get(index).map(|(name, only_dir)| {
        if *only_dir {
            format!("{name}/")
        } else {
            (*name).to_owned()
        }
    })
}

/// How many there are.
pub(super) const COUNT: usize = LIST.len();
