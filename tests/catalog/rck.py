"""Runs Iceberg's own compatibility kit for REST catalogs against a server that it starts.

    rck.py POLYNYA SCRATCH JARS

POLYNYA is the built program, SCRATCH a directory that may be emptied, JARS the directory of the kit's jars. The kit puts
tables below /tmp, so the server is configured to allow that location. Ends with 0 only if tests ran and none failed.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from server import Server

TESTS = ["RESTCompatibilityKitCatalogTests", "RESTCompatibilityKitViewCatalogTests"]
#: The directory in which the kit places tables with a location of its own, and the namespaces that it uses there.
TEMPORARY = Path("/tmp")
PLACES = [TEMPORARY / "newdb", TEMPORARY / "ns"]
LONGEST = 1800


def main(binary, scratch, jars):
    mine = [place for place in PLACES if not place.exists()]
    try:
        with Server(binary, Path(scratch) / "rck", locations=[TEMPORARY]) as server:
            options = {
                "rck.local": "false",
                "rck.requires-namespace-create": "true",
                "uri": server.catalog,
                "token": server.key,
                "java.io.tmpdir": str(TEMPORARY),
            }
            options |= {f"rck.{name}": value for name, value in options.items() if name in ("uri", "token")}
            command = ["java", "-Xmx1g", *(f"-D{name}={value}" for name, value in options.items())]
            command += ["-cp", f"{jars}/*", "org.junit.platform.console.ConsoleLauncher", "execute"]
            command += ["--details=tree", "--disable-banner", "--disable-ansi-colors"]
            command += [f"--select-class=org.apache.iceberg.rest.{test}" for test in TESTS]
            ran = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST, check=False)
    finally:
        for place in mine:
            shutil.rmtree(place, ignore_errors=True)
    print(ran.stdout[-200_000:])
    if ran.returncode not in (0, 1):
        print(ran.stderr[-20_000:], file=sys.stderr)
    count = lambda what: int(m[1]) if (m := re.search(rf"\[\s*(\d+) tests {what}\s*\]", ran.stdout)) else 0
    passed, failed, aborted, skipped = (count(what) for what in ("successful", "failed", "aborted", "skipped"))
    print(f"compatibility kit: {passed} passed, {failed} failed, {aborted + skipped} not for this catalog")
    return 0 if ran.returncode == 0 and passed > 100 and failed == 0 else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
