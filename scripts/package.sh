#!/usr/bin/env bash
# Packages the library as for a registry: each crate it needs with the others, in one go. Builds nothing: what is packaged
# is what the tests built. Needs the dependencies fetched.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

# `sim` and `testkit` for the engine's feature `contract`.
crates=(polynya polynya-types polynya-vfs polynya-commitlog polynya-table polynya-engine polynya-wire polynya-index
    polynya-query polynya-unify polynya-sim polynya-testkit)
cargo package --quiet --locked --offline --no-verify --allow-dirty "${crates[@]/#/--package=}"
