#!/usr/bin/env bash
# Installs the readers of the lake: Python with PyIceberg and DuckDB, in a virtual environment outside the clone. Prints `ready`
# and the path of its Python, or the missing part.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

missing() {
    [ -z "${CI:-}" ] || fail "$1, and in CI nothing is skipped"
    say "$1"
    exit 0
}

python_environment lake 11 tests/lake/requirements.txt
say "ready $environment/bin/python"
