#!/usr/bin/env bash
# soak.sh: everything that tables do at once, for an hour; fails if anything grows, is answered wrongly or gets lost.
#
# POLYNYA_SOAK: how long, 60m unless said otherwise; from 10m on growth is judged.
# POLYNYA_BIN: the program to soak, else the one that this builds.
# POLYNYA_SOAK_RATE: a factor of how much is asked, 1 unless said otherwise.
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
