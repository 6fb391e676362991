#!/usr/bin/env bash
# Makes what the lake is read with available: Python with PyIceberg and DuckDB, in a virtual environment outside the clone.
# Prints `ready` and the path of its Python, or what is missing.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

missing() {
    [ -z "${CI:-}" ] || fail "$1, and in CI nothing is skipped"
    say "$1"
    exit 0
}

find_python() { have python3 && python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

if ! find_python && can_install; then
    apt_install python3 python3-venv >&2 || say "apt-get could not install python3 and python3-venv" >&2
fi
find_python || missing "Python 3.11 or newer with venv is not installed (Debian: apt-get install python3 python3-venv)"

requirements=tests/lake/requirements.txt
# Another list or another Python makes another environment.
state=$(cat "$requirements" <(python3 --version) | cksum | cut -d' ' -f1)
environment=${XDG_CACHE_HOME:-$HOME/.cache}/polynya/lake-$state
if [ ! -e "$environment/ready" ]; then
    rm -rf "$environment"
    python3 -m venv "$environment" >&2 || missing "python3 could not make a virtual environment in $environment"
    "$environment/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: -r "$requirements" >&2 ||
        missing "pip could not install what $requirements names"
    touch "$environment/ready"
fi
say "ready $environment/bin/python"
