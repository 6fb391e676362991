#!/usr/bin/env bash
# Packages the library as for a registry, together with the crates that it needs. Builds nothing, since the tests have built the
# same sources. Needs the dependencies fetched.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

# `sim` and `testkit` are needed by the engine's feature `contract`.
crates=(polynya polynya-types polynya-vfs polynya-commitlog polynya-table polynya-engine polynya-wire polynya-index
    polynya-sql polynya-dialect polynya-query polynya-unify polynya-sim polynya-testkit)
cargo package --quiet --locked --offline --no-verify --allow-dirty "${crates[@]/#/--package=}"
