#!/usr/bin/env bash
# What a checkpoint costs on disk: real histories are replayed as edits in an attached directory, one checkpoint for each,
# and the store is compared with a git repository of the very same states after `git gc`.
#
#   tests/bench_store.sh BIN_DIR        BIN_DIR has stepback and stepbackd; `make bench-store` gives target/release
#
# The histories, each cut to its last STEPS (300) steps:
# - the commits of this repository, when this is a clone with a history;
# - published versions of two crates, taken from the registry by `cargo fetch`. Between two versions each changed file is a
#   step of its own, in order of names: so the steps are real edits, but not the commits in which they were made.
set -euo pipefail

bin=$(realpath "${1:?usage: bench_store.sh BIN_DIR}")
steps_max=${STEPS:-300}
source=$(realpath "$(dirname "$0")/..")
work=$(mktemp -d)
export HOME=$work/home XDG_STATE_HOME=$work/state XDG_RUNTIME_DIR=$work/run XDG_CONFIG_HOME=$work/home/.config
export STEPBACKD=$bin/stepbackd CARGO_HOME=${CARGO_HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)/.cargo}
export RUSTUP_HOME=${RUSTUP_HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)/.rustup} GIT_CONFIG_NOSYSTEM=1
mkdir -p "$HOME" "$XDG_CONFIG_HOME/stepback" && mkdir -m 700 -p "$XDG_RUNTIME_DIR"
# Every step is captured by a `save`: bursts would only add checkpoints of half-made steps.
printf 'settle_ms = 60000\nmax_wait_ms = 600000\n' > "$XDG_CONFIG_HOME/stepback/config.toml"
stepback() { "$bin/stepback" -q "$@"; }
end() { stepback daemon stop > /dev/null 2>&1 || true; rm -rf "$work"; }
trap end EXIT

tree() { echo "$work/$1/tree"; }
reference() { git --git-dir="$work/$1/git" --work-tree="$(tree "$1")" -c gc.auto=0 -c user.name=b -c user.email=b@b "${@:2}"; }

# A step is there: record it in both.
record() {
    stepback -C "$(tree "$1")" save -m "$2" > /dev/null
    reference "$1" add -A . > /dev/null
    reference "$1" commit -q --allow-empty -m "$2"
    steps=$((steps + 1))
}

begin() {
    mkdir -p "$(tree "$1")"
    git init -q --bare "$work/$1/git"
    steps=0
}

attach() { stepback attach --here "$(tree "$1")" > /dev/null; }

bytes() { du -sk "$@" | awk '{sum += $1} END {print sum * 1024}'; }

store_of() { "$bin/stepback" -C "$(tree "$1")" status --json | sed 's/.*"store":{[^}]*"path":"\([^"]*\)".*/\1/'; }

# Objects and refs, without the reserve file.
store_bytes() { local s; s=$(store_of "$1"); bytes $(ls -d "$s"/objects "$s"/refs "$s"/packed-refs 2> /dev/null); }

report() {
    local written kept git
    written=$(store_bytes "$1")
    # Maintenance at once, where this version has it: pruning gives space back before it returns.
    stepback -C "$(tree "$1")" prune -y > /dev/null 2>&1 || true
    kept=$(store_bytes "$1")
    reference "$1" gc -q --prune=now
    git=$(bytes $(ls -d "$work/$1/git/objects" "$work/$1/git/refs" "$work/$1/git/packed-refs" 2> /dev/null))
    printf '%-34s %6d %14d %14d %14d\n' "$2" "$steps" $((written / steps)) $((kept / steps)) $((git / steps))
}

own_history() {
    local name=own
    if [[ $(git -C "$source" rev-list --count HEAD 2> /dev/null || echo 0) -lt 20 ]]; then
        echo "skipped: this is no clone with a history"
        return
    fi
    begin $name
    local first=1 commit
    for commit in $(git -C "$source" rev-list --first-parent --reverse HEAD | tail -n "$steps_max"); do
        find "$(tree $name)" -mindepth 1 -delete
        git -C "$source" archive "$commit" | tar -x -C "$(tree $name)"
        [[ $first ]] && attach $name
        first=
        record $name "$commit"
    done
    report $name "commits of this repository"
}

# The unpacked sources of a version of a crate, or nothing.
fetch() {
    local dir=$work/fetch/$1-$2
    mkdir -p "$dir/src" && : > "$dir/src/lib.rs"
    printf '[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2021"\n[dependencies]\n%s = { version = "=%s", default-features = false }\n[workspace]\n' \
        "$1" "$2" > "$dir/Cargo.toml"
    cargo fetch -q --manifest-path "$dir/Cargo.toml" 2> /dev/null || return 0
    local crate
    crate=$(ls "$CARGO_HOME"/registry/cache/*/"$1-$2.crate" 2> /dev/null | head -n 1)
    [[ $crate ]] || return 0
    rm -f "$dir/Cargo.lock"
    tar -xzf "$crate" -C "$work/fetch"
    rm -rf "$dir/src"
    echo "$dir"
}

crate_history() {
    local name=$1 minor=$2 from=$3 to=$4 versions=() patch dir last=
    for ((patch = from; patch <= to; patch++)); do
        dir=$(fetch "$name" "$minor.$patch")
        [[ $dir ]] && versions+=("$dir")
    done
    if [[ ${#versions[@]} -lt 5 ]]; then
        echo "skipped: $name can't be had from the registry"
        return
    fi
    begin "$name"
    for dir in "${versions[@]}"; do
        if [[ ! $last ]]; then
            cp -r "$dir/." "$(tree "$name")"
            attach "$name"
            record "$name" "$dir"
        else
            local path
            while IFS= read -r path; do
                [[ $steps -ge $steps_max ]] && break
                if [[ -f $dir/$path ]]; then
                    mkdir -p "$(dirname "$(tree "$name")/$path")"
                    cp "$dir/$path" "$(tree "$name")/$path"
                else
                    rm -f "$(tree "$name")/$path"
                fi
                record "$name" "$path"
            done < <(changed "$last" "$dir")
        fi
        last=$dir
    done
    report "$name" "$name, ${#versions[@]} versions by file"
}

# Relative paths of files that differ between two directories.
changed() {
    (cd "$1" && find . -type f) > "$work/a"
    (cd "$2" && find . -type f) > "$work/b"
    sort -u "$work/a" "$work/b" | while IFS= read -r path; do
        cmp -s "$1/$path" "$2/$path" || echo "${path#./}"
    done
}

printf '%-34s %6s %14s %14s %14s\n' "bytes for each checkpoint" steps "as written" "maintained" "git gc"
own_history
crate_history anyhow 1.0 40 99
crate_history semver 1.0 0 26
