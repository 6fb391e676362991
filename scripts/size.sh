#!/usr/bin/env bash
# size.sh: prints the size of a small program that uses the library, without and with SQL, and the crates that it is built from.
# Builds in release; the first time both builds take long (docs/performance.md).
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

need_rust
need_c
target=$(target_dir)
need_disk 6 "$target" "the release builds"

# measure NAME EXAMPLE FLAG...
measure() {
    local name=$1 example=$2 start=$SECONDS stripped
    shift 2
    cargo build --quiet --release --locked -p polynya --example "$example" "$@"
    stripped=$(mktemp)
    strip -o "$stripped" "$target/release/examples/$example"
    printf '%-12s %-10s %6.1f MB, stripped %5.1f MB, %3d crates of others, built in %d s\n' "$name" "$example" \
        "$(megabytes "$target/release/examples/$example")" "$(megabytes "$stripped")" "$(crates "$@")" $((SECONDS - start))
    rm -f "$stripped"
}

megabytes() { stat -c %s "$1" | awk '{ printf "%.1f", $1 / 1e6 }'; }

# Counts the distinct third-party crates. `polynya-unify` names more of them than the library uses; it has no code and is not
# counted.
crates() {
    cargo tree --locked -p polynya -e normal --prefix none --format '{p}' --prune polynya-unify "$@" | sed -E 's/ \(.*//' | grep -v '^polynya' | sort -u | wc -l
}

measure "without SQL" subscribe --no-default-features
measure "with SQL" inventory --no-default-features --features sql
