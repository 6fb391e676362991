#!/usr/bin/env bash
# Runs every test but the long ones. With CI set, nothing is skipped: a missing requirement fails.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

need_rust
need_c
target=$(target_dir)
if is_cold "$target"; then
    need_disk 12 "$target" "building all tests"
    say "Building Polynya, what it depends on and all tests: about $(minutes_of 50 4) minutes on $(cores) cores; the tests take some more."
fi
# One test holds 10,000 connections.
ulimit -n "$(ulimit -Hn)"

# Runs all Rust tests, and repeats the failures at the end of the output.
rust_tests() {
    local log failed=0
    log=$(mktemp)
    cargo test --workspace --exclude polynya-compare --exclude polynya-python --locked --quiet --no-fail-fast 2>&1 |
        tee "$log" || failed=1
    if [ "$failed" = 1 ]; then
        say "== what failed"
        grep -E "^---- .* stdout ----|panicked at|exceeded its limit|\(signal: |^    \`-p " -A 1 "$log" | cut -c 1-400 || true
    fi
    rm -f "$log"
    return "$failed"
}

browser=$(scripts/browser.sh)
lake=$(scripts/lake.sh)
phase "build" cargo test --workspace --exclude polynya-compare --exclude polynya-python --locked --no-run --quiet
phase "tests" rust_tests
# The variable is not exported, since the program would warn of an unknown setting.
polynya="$target/debug/polynya"
if [[ "$browser" = ready\ * ]]; then
    export CHROMIUM=${browser#ready }
    phase "browser tests" env POLYNYA_BIN="$polynya" npm --prefix tests/browser --silent test
else
    say "== browser tests: SKIPPED, $browser"
fi
if [[ "$lake" = ready\ * ]]; then
    phase "lake read by others" "${lake#ready }" tests/lake/interop.py "$target/debug/examples/interop" "$target/lake-interop"
    phase "Iceberg catalog, PyIceberg and DuckDB" "${lake#ready }" tests/catalog/readers.py "$polynya" "$target/catalog-scratch"
    phase "tables of others imported" "${lake#ready }" tests/lake/imports.py "$polynya" "$target/imports-scratch"
    phase "lake in an object store" "${lake#ready }" tests/lake/objects.py "$polynya" "$target/objects-scratch"
    phase "lake in another catalog" "${lake#ready }" tests/lake/catalog.py "$polynya" "$target/elsewhere-scratch"
    phase "lake with credentials of its catalog" "${lake#ready }" tests/lake/vended.py "$polynya" "$target/vended-scratch"
else
    say "== lake read by others: SKIPPED, $lake"
fi
