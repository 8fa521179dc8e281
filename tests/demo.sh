#!/bin/sh
# Plays the main job in a scratch copy of a real source tree and proves each step by checksums.
# usage: tests/demo.sh DIRECTORY-OF-THE-PROGRAMS
# Own home, state and socket; stops its own daemon; leaves nothing behind. Exits 1 when a proof fails.
set -eu

bin=$(cd "${1:?usage: tests/demo.sh DIRECTORY-OF-THE-PROGRAMS}" && pwd)
source=$(cd "$(dirname "$0")/.." && pwd)
scratch=$(mktemp -d "${TMPDIR:-/tmp}/stepback-demo.XXXXXX")
project=$scratch/project

HOME=$scratch/home
XDG_CONFIG_HOME=$HOME/.config
XDG_STATE_HOME=$scratch/state
XDG_RUNTIME_DIR=$scratch/run
STEPBACKD=$bin/stepbackd
export HOME XDG_CONFIG_HOME XDG_STATE_HOME XDG_RUNTIME_DIR STEPBACKD
unset STEPBACK_SOCKET STEPBACK_STATE_DIR STEPBACK_CONFIG STEPBACK_LOG STEPBACK_NO_AUTOSTART
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE
PAGER=cat
# So that `git status`, run by this script, doesn't write the index.
GIT_OPTIONAL_LOCKS=0
export PAGER GIT_OPTIONAL_LOCKS

stepback() { "$bin/stepback" "$@"; }
say() { printf '\n== %s\n' "$*"; }
show() { printf '$ %s\n' "$*"; "$@"; }

# Whatever happens, the daemon of the demo ends and the scratch directory goes.
cleanup() {
    status=$?
    trap - EXIT INT TERM HUP
    cd /
    if [ -e "$XDG_STATE_HOME/stepback/daemon.json" ]; then
        stepback -q daemon stop >/dev/null 2>&1 || echo "the demo's daemon did not stop" >&2
    fi
    chmod -R u+rwX "$scratch" 2>/dev/null || true
    rm -rf "$scratch"
    exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# One line for every entry: type, mode, name, link target, checksum. What is in .git is listed apart.
checksum() { if command -v sha256sum >/dev/null; then sha256sum "$@"; else shasum -a 256 "$@"; fi; }
sums() {
    (
        cd "$project"
        find . -name .git -prune -o -exec ls -ld {} + | awk '{ print $1, $9, $10, $11 }' | LC_ALL=C sort
        find . -name .git -prune -o -type f -print | LC_ALL=C sort | while IFS= read -r file; do checksum "$file"; done
    ) | checksum | cut -d' ' -f1
}
gitsums() {
    (
        cd "$project"
        find .git -exec ls -ld {} + | awk '{ print $1, $5, $6, $7, $8, $9 }' | LC_ALL=C sort
        find .git -type f | LC_ALL=C sort | while IFS= read -r file; do checksum "$file"; done
    ) | checksum | cut -d' ' -f1
}
prove() {
    if [ "$2" = "$3" ]; then
        printf 'proved: %s\n        %s\n' "$1" "$3"
    else
        printf 'NOT SO: %s\n        wanted %s\n        have   %s\n' "$1" "$2" "$3" >&2
        exit 1
    fi
}
# Waits until everything written so far is in a checkpoint.
settle() {
    looks=0
    until stepback --json status | tr -d ' \n' | grep -q '"settled":true'; do
        looks=$((looks + 1))
        [ "$looks" -lt 300 ] || { echo "nothing settled in 30 s" >&2; exit 1; }
        sleep 0.1
    done
}

mkdir -p "$project" "$HOME" "$XDG_STATE_HOME" "$XDG_RUNTIME_DIR"
chmod 700 "$XDG_RUNTIME_DIR"

say "a scratch copy of a source tree, with a change of your own that isn't committed"
(cd "$source" && tar -cf - --exclude=./target --exclude=./.git .) | (cd "$project" && tar -xf -)
cd "$project"
git init -q .
git add -A
git -c user.name=You -c user.email=you@localhost commit -q -m 'start'
printf '\nA note of mine, not committed.\n' >>README.md
printf 'todo\n' >notes.txt
git add notes.txt
git status --short
printf '%s files\n' "$(find . -name .git -prune -o -type f -print | wc -l | tr -d ' ')"

say "attach it: once per project"
show stepback attach
settle
before=$(sums)
git_before=$(gitsums)

say "an agent's bad turn: edits, deletes, creates, renames and chmods, all through the shell"
sh -eu <<'AGENT'
for file in $(find . -name '*.rs' -not -path './.git/*'); do sed -i.bak 's/fn /fnord /' "$file"; rm "$file.bak"; done
rm -r systemd LICENSE
mkdir -p src/generated/deep
cat > src/generated/deep/mod.rs <<'TEXT'
// Everything is better now.
TEXT
mv proto protocol
chmod +x Cargo.toml
ln -s /nowhere shortcut
: > README.md
AGENT
git status --short | wc -l | awk '{ print $1, "paths differ for git" }'
settle
damaged=$(sums)
[ "$damaged" != "$before" ] || { echo "the script ought to have changed the tree" >&2; exit 1; }

say "nobody saved anything, and yet"
show stepback list
say "what did it change?"
show stepback diff latest --stat | tail -n 8

say "rewind"
show stepback rewind -y
prove "every file, link and mode is back" "$before" "$(sums)"
prove "nothing below .git was touched" "$git_before" "$(gitsums)"
git status --short

say "redo: even the rewind can be taken back"
show stepback redo -y
prove "the tree is as the agent had left it" "$damaged" "$(sums)"

say "and back again"
show stepback rewind first -y
prove "every file, link and mode is back" "$before" "$(sums)"

say "done; the scratch copy and its daemon go now"
