"""Sends requests generated from `/openapi.json` to a server of its own, and compares the answers with that description.

    generated.py POLYNYA SCRATCH [SECONDS]

POLYNYA is the built program, SCRATCH a directory that may be emptied, SECONDS the duration of the requests. Needs a Python
with schemathesis. Ends with 0 if no answer was a 5xx and each matched its description.
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "catalog"))

from server import Server  # noqa: E402

#: The checks. Those that need a description as strict as the server are left out: many texts are not table names.
CHECKS = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
]
#: Excluded routes: endless answers, and a process that takes the whole machine.
WITHOUT = ["/v1/tables/{table}/tail", "/_/live", "/v1/storm"]
#: The seed, so that the requests are the same each time.
SEED = 30


def main(binary, scratch, seconds="240"):
    with Server(binary, Path(scratch) / "openapi") as server:
        for table, rows in [("events", [{"kind": "a", "size": 1}, {"kind": "b"}]), ("lab.t", {"x": 1.5})]:
            server.request("POST", f"/v1/tables/{table}/rows", rows)
        keyed = {"columns": [{"name": "id", "type": "int64"}], "primary_key": ["id"]}
        server.request("PUT", "/v1/tables/keyed", keyed)
        command = [sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json"]
        command += ["--url", server.url, "--header", f"Authorization: Bearer {server.key}"]
        command += ["--checks", ",".join(CHECKS), "--phases", "examples,coverage,fuzzing"]
        command += [part for path in WITHOUT for part in ("--exclude-path", path)]
        command += ["--seed", str(SEED), "--max-time", seconds, "--request-timeout", "60"]
        command += ["--suppress-health-check", "all", "--no-color"]
        return subprocess.run(command, check=False, cwd=scratch).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
