#!/usr/bin/env bash
# run.sh [ADDRESS]: goes from a fresh clone to the running demo.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

listen=${1:-${POLYNYA_LISTEN:-127.0.0.1:8484}}
need_rust
target=$(target_dir)
# The binary itself reports a taken port, but only after the build; this check comes before it.
if is_cold "$target" && (exec 3<>"/dev/tcp/${listen%:*}/${listen##*:}") 2>/dev/null; then
    fail "port ${listen##*:} is taken; stop the program that listens there, or choose another: make run LISTEN=127.0.0.1:8485"
fi
scripts/build.sh "Then the demo opens: http://$listen/_/ shows this machine live; the data stays in ${POLYNYA_DATA:-./polynya-data}."
if ! have polynya; then
    say "In another terminal: alias polynya='$target/debug/polynya'"
fi

# The demo publishes the README, docs/, and the Markdown files of the crates that it was built from, as cargo unpacked them on
# this machine. All keep their paths in the repository, so that links between them work.
given=(README.md ARCHITECTURE.md docs)
while read -r crate; do
    for dir in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/"$crate"; do
        if [ -d "$dir" ]; then
            given+=("crates/$crate=$dir")
            break
        fi
    done
done < <(awk -F'"' '/^name = / { name = $2 } /^version = / { version = $2 } /^source = / { print name "-" version }' Cargo.lock)
say "The demo publishes README.md, ARCHITECTURE.md, docs/ and the Markdown files of the $((${#given[@]} - 3)) crates in cargo's cache that it was built from."
exec "$target/debug/polynya" demo --listen "$listen" --set site.title=Polynya "${given[@]}"
