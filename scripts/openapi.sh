#!/usr/bin/env bash
# Tests a server with requests that schemathesis generates from /openapi.json: none may get a 5xx, and every answer must match its
# description. schemathesis comes from PyPI, in a virtual environment outside the clone.
#
# POLYNYA_BIN: the program to test, else the one that this builds. The first argument: the duration in seconds.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

python_environment openapi 11 tests/openapi/requirements.txt
find_polynya
exec "$environment/bin/python" tests/openapi/generated.py "$bin" "$target/openapi-scratch" "${1:-240}"
