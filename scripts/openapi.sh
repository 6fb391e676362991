#!/usr/bin/env bash
# Requests that are made of /openapi.json, sent to a server of its own by schemathesis: no 5xx, and every answer as described.
# schemathesis comes from PyPI and lies in a virtual environment outside the clone.
#
# POLYNYA_BIN: the program to test, else the one that this builds. The first argument: for how many seconds.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

missing() {
    [ -z "${CI:-}" ] || fail "$1, and in CI nothing is skipped"
    say "SKIPPED: $1"
    exit 0
}

find_python() { have python3 && python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

if ! find_python && can_install; then
    apt_install python3 python3-venv >&2 || say "apt-get could not install python3 and python3-venv" >&2
fi
find_python || missing "Python 3.11 or newer with venv is not installed (Debian: apt-get install python3 python3-venv)"

requirements=tests/openapi/requirements.txt
state=$(cat "$requirements" <(python3 --version) | cksum | cut -d' ' -f1)
environment=${XDG_CACHE_HOME:-$HOME/.cache}/polynya/openapi-$state
if [ ! -e "$environment/ready" ]; then
    rm -rf "$environment"
    python3 -m venv "$environment" >&2 || missing "python3 could not make a virtual environment in $environment"
    "$environment/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: -r "$requirements" >&2 ||
        missing "pip could not install what $requirements names"
    touch "$environment/ready"
fi
find_polynya
exec "$environment/bin/python" tests/openapi/generated.py "$bin" "$target/openapi-scratch" "${1:-240}"
