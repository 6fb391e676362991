#!/usr/bin/env bash
# Checks the machine, estimates the time of the build, and builds the binary.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

need_rust
target=$(target_dir)
if is_cold "$target"; then
    need_c
    need_disk 5 "$target" "the first build"
    say "Building Polynya and what it depends on: about $(minutes_of 34 2) minutes on $(cores) cores. Later builds take seconds."
else
    need_disk 1 "$target" "building"
fi
[ "${1:-}" = "" ] || say "$1"
cargo build --locked -p polynya-app --bin polynya || fail "the build failed; what the compiler said stands above"
