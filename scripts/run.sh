#!/usr/bin/env bash
# run.sh [ADDRESS]: everything from a fresh clone to the running demo.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

listen=${1:-${POLYNYA_LISTEN:-127.0.0.1:8484}}
need_rust
target=$(target_dir)
# The binary itself says who has the port, but nobody should wait for a build to hear it.
if is_cold "$target" && (exec 3<>"/dev/tcp/${listen%:*}/${listen##*:}") 2>/dev/null; then
    fail "port ${listen##*:} is taken; stop the program that listens there, or choose another: make run LISTEN=127.0.0.1:8485"
fi
scripts/build.sh "Then the demo opens: http://$listen/_/ shows this machine live; the data stays in ${POLYNYA_DATA:-./polynya-data}."
if ! have polynya; then
    say "In another terminal: alias polynya='$target/debug/polynya'"
fi
exec "$target/debug/polynya" demo --listen "$listen"
