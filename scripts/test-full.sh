#!/usr/bin/env bash
# The long tests: thousands of seeds, 10,000 connections, 20 kills, 10,000,000 rows, big benchmarks. Run after scripts/test.sh.
#
# POLYNYA_FULL_SEEDS: the number of seeds of each simulation, 3000 by default.
# POLYNYA_FULL_MEASURE: the duration of each measurement, 30s by default.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

seeds=${POLYNYA_FULL_SEEDS:-3000}
measure=${POLYNYA_FULL_MEASURE:-30s}
need_rust
target=$(target_dir)
need_disk 12 "$target" "the long tests"
ulimit -n "$(ulimit -Hn)"

# run_seeds PACKAGE STEP FILTER: runs STEP seeds per process, so that the time limit of a test applies to each process and a
# failure names few seeds.
run_seeds() {
    local package=$1 step=$2 filter=$3 first last
    for ((first = 0; first < seeds; first += step)); do
        last=$((first + step < seeds ? first + step : seeds))
        POLYNYA_TEST_SEEDS=$first..$last cargo test --quiet --locked -p "$package" --tests -- "$filter" >"$log" 2>&1 || {
            cat "$log" >&2
            say "seeds $first to $((last - 1)) of $package, $filter" >&2
            return 1
        }
        grep -qE '[1-9][0-9]* passed' "$log" || {
            say "no test of $package is named $filter" >&2
            return 1
        }
    done
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT

phase "$seeds seeds: engine, crashes" run_seeds polynya-engine 100 acknowledged_commits_survive_crashes_at_random_calls
phase "$seeds seeds: engine, flipped bits" run_seeds polynya-engine 60 a_flipped_bit_in_the_durable_log
phase "$seeds seeds: manifest and segments, flipped bits" run_seeds polynya-engine 60 a_flipped_bit_in_a_manifest_or_segment
phase "$seeds seeds: engine, failing I/O" run_seeds polynya-engine 100 reads_and_writes_that_fail
seeds=7 phase "every byte of a log's files changed" run_seeds polynya-commitlog 7 no_change_of_a_log_file
seeds=200 phase "every byte of a database's files changed" run_seeds polynya-server 20 no_changed_file_of_a_database
POLYNYA_TEST_FUZZ_SECONDS=60 phase "decoders and statements, a minute of mutated inputs each" \
    cargo test --locked --quiet -p polynya-fuzz --tests
phase "$seeds seeds: lake, the contract" run_seeds polynya-lake 300 a_lake_killed_at_any_call_ends_as_one_built_from_nothing
phase "$seeds seeds: lake without a key, the contract" run_seeds polynya-lake 300 a_lake_of_a_table_without_a_key_killed_at_any_call_ends_as_one_built_from_nothing
phase "$seeds seeds: site, the contract" run_seeds polynya-site 300 a_site_killed_at_any_step_ends_as_one_built_from_nothing
phase "$seeds seeds: a small materializer, the contract" run_seeds polynya-engine 500 a_materializer_killed_at_any_step
phase "$seeds seeds: lake, failing I/O" run_seeds polynya-lake 300 failing_writes_and_syncs_are_survived
phase "$seeds seeds: log, crashes" run_seeds polynya-commitlog 300 acknowledged_commits_survive_a_crash_at_some_call
phase "$seeds seeds: log, failing I/O" run_seeds polynya-commitlog 300 a_failing_disk_loses_nothing
# Each of these seeds takes a third to half a second.
seeds=$((seeds / 10)) phase "$((seeds / 10)) seeds: engine, every kind of change" run_seeds polynya-engine 50 every_kind_of_change
seeds=$((seeds / 10)) phase "$((seeds / 10)) seeds: text and column indexes, the contract" run_seeds polynya-index 50 an_index_killed_at_any_step_ends_as_one_built_from_nothing
seeds=$((seeds / 10)) phase "$((seeds / 10)) seeds: column indexes, against a scan" run_seeds polynya-index 50 index_and_tail_find_what_a_scan_finds
seeds=$((seeds / 20)) phase "$((seeds / 20)) seeds: SQL with and without indexes" run_seeds polynya-query 25 a_query_finds_the_same_with_and_without_indexes
seeds=$((seeds / 20)) phase "$((seeds / 20)) seeds: lookups with and without a plan" run_seeds polynya-query 25 a_lookup_without_a_plan_answers_as_the_plan_does
seeds=$((seeds / 10)) phase "$((seeds / 10)) seeds: text index, against BM25 over every row" run_seeds polynya-index 50 scores_are_those_of_bm25
seeds=$((seeds / 10)) phase "$((seeds / 10)) seeds: text index and tail, against a fresh index" run_seeds polynya-index 25 index_and_tail_answer_as_a_fresh_index
seeds=$((seeds / 4)) phase "$((seeds / 4)) seeds: table, against a model" run_seeds polynya-table 25 tests::model

phase "package" scripts/package.sh
phase "comparison: lint" cargo clippy --locked --quiet -p polynya-compare --all-targets -- -D warnings
phase "comparison: tests" cargo test --locked --quiet -p polynya-compare
phase "decoders of JSON" cargo test --locked --quiet -p polynya-compare --no-default-features --features decoders
phase "Python package: lint" cargo clippy --locked --quiet -p polynya-python -- -D warnings
phase "Python package" scripts/python.sh
phase "20,000 statements: SQL, against SQLite" cargo run --locked --quiet -p polynya-compare -- queries --seeds 100

POLYNYA_TEST_CONNECTIONS=10000 phase "10,000 connections" \
    cargo test --locked --quiet -p polynya-server --test bad_input -- many_connections_are_served_at_once
phase "release build" cargo build --release --locked --quiet -p polynya-app --bin polynya
export POLYNYA_BIN="$target/release/polynya"
POLYNYA_TEST_RESTART_ROWS=10000000 phase "restart with 10,000,000 rows" \
    cargo test --locked --quiet -p polynya-e2e --test e2e -- --nocapture a_directory_with_many_rows
POLYNYA_TEST_HOSTILE_SECONDS=600 phase "ten minutes of hostile clients" \
    cargo test --locked --quiet -p polynya-e2e --test e2e -- --nocapture hostile_clients
phase "requests made of openapi.json" scripts/openapi.sh
lake=$(scripts/lake.sh)
if [[ "$lake" = ready\ * ]]; then
    cargo build --quiet --locked -p polynya-lake --example interop
    phase "lake under a steady load, read by others" "${lake#ready }" tests/lake/landing.py "$POLYNYA_BIN" "$target/lake-landing"
    phase "lake read by others, every kill" "${lake#ready }" tests/lake/interop.py "$target/debug/examples/interop" "$target/lake-interop" --every
else
    say "== lake read by others, every kill: SKIPPED, $lake"
fi
phase "lake and backups in another S3 server" scripts/s3.sh
phase "Iceberg catalog, compatibility kit" scripts/rck.sh
phase "Iceberg catalog, Spark" scripts/spark.sh
phase "Iceberg catalog, Trino" scripts/trino.sh
phase "20 kills" "$POLYNYA_BIN" bench kill9 --rounds 20 --root "$target"
for load in half full; do
    phase "storm, load $load" "$POLYNYA_BIN" storm --load "$load" --root "$target"
done
for workload in ingest reads sql; do
    phase "bench $workload" "$POLYNYA_BIN" bench "$workload" --measure "$measure" --root "$target"
done
for workload in freeze tables; do
    phase "bench $workload" "$POLYNYA_BIN" bench "$workload" --root "$target"
done
phase "bench ingest, single events" "$POLYNYA_BIN" bench ingest --batch 1 --measure "$measure" --root "$target"
