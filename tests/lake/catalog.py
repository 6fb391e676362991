"""Tests the lake in an external catalog. The tables of one server go to the Iceberg REST catalog of a second one, over a
network that loses requests and answers, while both servers are killed. PyIceberg must read there what SQL returns.

    catalog.py POLYNYA SCRATCH

POLYNYA is the built program, SCRATCH a directory that may be emptied.
"""

import http.client
import http.server
import random
import subprocess
import sys
import threading
import time
import urllib.error
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "catalog"))

from pyiceberg.catalog import load_catalog

from server import Server


class Proxy(http.server.ThreadingHTTPServer):
    """Forwards requests to the catalog, with the failures that `fault` selects."""

    daemon_threads = True

    def __init__(self, catalog):
        super().__init__(("127.0.0.1", 0), Handler)
        self.catalog = catalog
        # The kind of failure: "" (none), "away" (503), or "lossy" (some requests and some answers are lost).
        self.fault = ""
        self.random = random.Random(7)
        self.lost = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_):
        """Ignores clients that were killed in the middle of a request."""

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/iceberg"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def forward(self):
        server = self.server
        length = self.headers.get("Content-Length")
        body = self.rfile.read(int(length)) if length else None
        loses = server.fault == "lossy" and server.random.random() < 0.3
        if server.fault == "away" or loses and server.random.random() < 0.3:
            server.lost += loses
            return self.answer(503, b"")
        try:
            host = server.catalog.url.removeprefix("http://")
            to = http.client.HTTPConnection(host, timeout=60)
            to.request(self.command, self.path, body, dict(self.headers.items()))
            answer = to.getresponse()
            content = answer.read()
            to.close()
        except (OSError, http.client.HTTPException):
            return self.answer(502, b"")
        if loses:
            # The request was carried out, but its answer is lost.
            server.lost += 1
            if server.random.random() < 0.5:
                return self.answer(500, b"")
            self.close_connection = True
            return None
        return self.answer(answer.status, content)

    def answer(self, status, content):
        self.send_response_only(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_DELETE = do_HEAD = forward


def rows(server, sql):
    return server.request("POST", "/v1/sql", {"sql": sql})["rows"]


def fill(server):
    server.request("PUT", "/v1/tables/users", {
        "columns": [{"name": "id", "type": "int64"}, {"name": "n", "type": "int64"}], "primary_key": ["id"],
    })
    # Nested fields have ids that no catalog would assign.
    server.request("PUT", "/v1/tables/events", {
        "columns": [{"name": "n", "type": "int64"}, {"name": "text", "type": "string"},
                    {"name": "at", "type": "point"}, {"name": "v", "type": "vector(3)"}],
        "partition_by": ["bucket(4, n)"], "sort_by": ["n desc"],
    })


def write(server, turn):
    server.request("POST", "/v1/tables/users/rows", [{"id": n, "n": turn} for n in range(turn * 10, turn * 10 + 50)])
    server.request("POST", "/v1/tables/events/rows", [
        {"n": turn * 100 + n, "text": f"t{n}", "at": [n / 4, turn], "v": [n, turn, 0.5]} for n in range(100)
    ])
    server.request("POST", "/v1/sql", {"sql": f"DELETE FROM events WHERE n % 17 = {turn % 17}"})


def land(server):
    """Commits to the lake; retries, since a step in progress or a catalog that has just come back may fail once more."""
    for table in ("users", "events"):
        until = time.monotonic() + 60
        while True:
            try:
                server.request("POST", f"/v1/tables/{table}/commit")
                break
            except urllib.error.HTTPError as error:
                assert time.monotonic() < until, error.read()
                time.sleep(0.2)


def is_equal(server, catalog):
    """Asserts that PyIceberg finds in the catalog what SQL returns, each row once."""
    land(server)
    verified = subprocess.run(
        [server.binary, "lake", "verify", "--data", str(server.data)], capture_output=True, text=True,
    )
    assert verified.returncode == 0, verified.stdout + verified.stderr
    reader = load_catalog("there", type="rest", uri=catalog.catalog, token=catalog.key)
    for table, columns in (("users", "id, n"), ("events", "n, text")):
        expected = [tuple(row) for row in rows(server, f"SELECT {columns} FROM {table} ORDER BY {columns}")]
        loaded = reader.load_table(f"main.{table}")
        names = columns.split(", ")
        found = loaded.scan(selected_fields=tuple(names)).to_arrow().to_pylist()
        found = sorted(tuple(row[name] for name in names) for row in found)
        assert found == expected, f"PyIceberg: {table} has {len(found)} rows, {len(expected)} expected"
        assert len({row for row in found}) == len(found) or table == "users"


def refused(server):
    """Returns the message of a server that refuses to start."""
    try:
        server.__enter__()
    except RuntimeError as error:
        return str(error)
    finally:
        server.__exit__()
    raise AssertionError("it started")


def main():
    binary, scratch = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    home = scratch / "lands"
    with Server(binary, scratch / "catalog", locations=[home / "data" / "lake"]) as catalog:
        proxy = Proxy(catalog)
        environment = {"POLYNYA_LAKE_CATALOG": proxy.url, "POLYNYA_LAKE_CATALOG_TOKEN": catalog.key}
        with Server(binary, home, environment=environment) as server:
            fill(server)
            for turn in range(6):
                write(server, turn)
            is_equal(server, catalog)
            shown = subprocess.run(
                [binary, "lake", "status", "--data", str(server.data)], capture_output=True, text=True,
            ).stdout
            assert "/lake/main/users-" in shown, shown
            # Requests and answers are lost.
            proxy.fault = "lossy"
            for turn in range(6, 26):
                write(server, turn)
                time.sleep(0.2)
            proxy.fault = ""
            # A failed step is retried after one, two, then four seconds.
            assert proxy.lost > 0, proxy.lost
            is_equal(server, catalog)
            # Both servers are killed in turns during lake commits.
            for turn in range(26, 34):
                write(server, turn)
                time.sleep(0.05 * (turn - 25))
                who = (server, catalog)[turn % 2]
                who.kill()
                who.start()
            is_equal(server, catalog)
            # The catalog is away: writers and readers do not notice, and the lake catches up.
            proxy.fault = "away"
            for turn in range(34, 38):
                began = time.monotonic()
                write(server, turn)
                assert rows(server, "SELECT count(*) FROM events")[0][0] > 0
                assert time.monotonic() - began < 5, "nobody waits for the catalog"
            server.kill()
            server.start()
            write(server, 38)
            proxy.fault = ""
            is_equal(server, catalog)
            # Columns are added and dropped, and the partitioning changes.
            server.request("POST", "/v1/sql", {"sql": "ALTER TABLE users ADD COLUMN level int DEFAULT 7"})
            server.request("POST", "/v1/sql", {"sql": "ALTER TABLE events DROP COLUMN at"})
            server.request("POST", "/v1/sql", {"sql": "ALTER TABLE users SET (partition_by = 'bucket(3, id)')"})
            server.request("POST", "/v1/tables/users/rows", [{"id": n, "n": 99} for n in range(20)])
            is_equal(server, catalog)
            reader = load_catalog("there", type="rest", uri=catalog.catalog, token=catalog.key)
            assert set(reader.load_table("main.users").scan().to_arrow()["level"].to_pylist()) == {7}
            # A dropped table leaves the catalog, with its files.
            server.request("DELETE", "/v1/tables/users")
            until = time.monotonic() + 60
            while reader.table_exists("main.users") or list((server.data / "lake" / "main").glob("users-*/data/*")):
                assert time.monotonic() < until, "a dropped table stays"
                time.sleep(0.2)
        for changed, said in (
            ({"POLYNYA_LAKE_CATALOG_TOKEN": "pk_wrong"}, "lake.catalog_token"),
            ({"POLYNYA_LAKE_CATALOG": catalog.url}, "no Iceberg REST catalog"),
        ):
            why = refused(Server(binary, scratch / "refused", environment={**environment, **changed}))
            assert said in why and "pk_wrong" not in why, why
    print("the lake in another catalog: PyIceberg reads there what SQL says")


if __name__ == "__main__":
    main()
