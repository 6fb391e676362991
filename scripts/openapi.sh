#!/usr/bin/env bash
# Requests that are made of /openapi.json, sent to a server of its own by schemathesis: no 5xx, and every answer as described.
# schemathesis comes from PyPI and lies in a virtual environment outside the clone.
#
# POLYNYA_BIN: the program to test, else the one that this builds. The first argument: for how many seconds.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

python_environment openapi 11 tests/openapi/requirements.txt
find_polynya
exec "$environment/bin/python" tests/openapi/generated.py "$bin" "$target/openapi-scratch" "${1:-240}"
