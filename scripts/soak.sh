#!/usr/bin/env bash
# soak.sh: runs all functions of tables at once for an hour. Fails if anything grows, is answered wrongly or is lost.
#
# POLYNYA_SOAK: the duration, 60m by default. Growth is judged from 10m on.
# POLYNYA_BIN: the program to soak, else the one that this builds.
# POLYNYA_SOAK_RATE: a factor for the load, 1 by default.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

time=${POLYNYA_SOAK:-60m} rate=${POLYNYA_SOAK_RATE:-1}
bin=${POLYNYA_BIN:-}
unset POLYNYA_SOAK POLYNYA_SOAK_RATE POLYNYA_BIN
ulimit -n "$(ulimit -Hn)"
if [ -z "$bin" ]; then
    need_rust
    target=$(target_dir)
    scripts/build.sh
    bin=$target/debug/polynya
fi
root=$(dirname "$bin")
need_disk 2 "$root" "the soak"
say "Soaking for $time; each line tells what the server has. Its directory is below $root."
exec "$bin" bench soak --measure "$time" --rate "$rate" --root "$root"
