"""The lake in an object store that speaks S3: what lands there is read by PyIceberg and DuckDB, whatever happens to the
network and to the server; stores that are not safe are refused.

    objects.py POLYNYA SCRATCH

POLYNYA is the built program, SCRATCH a directory that may be emptied. The store is moto's, on this machine, behind a proxy
that can lose conditions, answers and connections.
"""

import http.client
import http.server
import json
import os
import random
import subprocess
import sys
import threading
import time
import urllib.error
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "catalog"))

import boto3
import duckdb
import duckdb_ext
from moto.server import ThreadedMotoServer
from pyiceberg.catalog import load_catalog

from server import Server

SECRETS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}


class Proxy(http.server.ThreadingHTTPServer):
    """Hands requests to the store. What `fault` says happens to them."""

    daemon_threads = True

    def __init__(self, port):
        super().__init__(("127.0.0.1", 0), Handler)
        self.store_port = port
        # One of "", "careless" (conditions are lost), "away" (503), "lossy" (some answers, and some requests, are lost).
        self.fault = ""
        self.random = random.Random(5)
        self.lost = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_):
        """Whoever was killed in the middle of a request is gone."""

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def body(self):
        length = self.headers.get("Content-Length")
        return self.rfile.read(int(length)) if length else None

    def forward(self):
        server, body = self.server, self.body()
        lossy = server.fault == "lossy" and self.command in ("PUT", "POST", "DELETE")
        loses = lossy and server.random.random() < 0.25
        if server.fault == "away" or loses and server.random.random() < 0.5:
            server.lost += loses
            return self.answer(503, [], b"")
        headers = {name: value for name, value in self.headers.items()}
        if server.fault == "careless":
            headers = {name: value for name, value in headers.items() if name.lower() != "if-none-match"}
        store = http.client.HTTPConnection("127.0.0.1", server.store_port, timeout=60)
        store.request(self.command, self.path, body, headers)
        answer = store.getresponse()
        content = answer.read()
        store.close()
        if loses:
            # It was done, and nobody is told.
            server.lost += 1
            return self.answer(500, [], b"")
        self.answer(answer.status, answer.getheaders(), content)

    def answer(self, status, headers, content):
        self.send_response_only(status)
        own = ("connection", "transfer-encoding", "content-length")
        for name, value in headers:
            if name.lower() not in own:
                self.send_header(name, value)
        length = dict((name.lower(), value) for name, value in headers).get("content-length")
        self.send_header("Content-Length", length if self.command == "HEAD" and length else str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = forward


def environment(proxy, prefix):
    return {
        **SECRETS,
        "POLYNYA_LAKE_WAREHOUSE": f"s3://bucket/{prefix}",
        "POLYNYA_LAKE_S3_ENDPOINT": proxy.url,
        "POLYNYA_LAKE_S3_REGION": "us-east-1",
    }


def polynya(server, *arguments):
    return subprocess.run(
        [server.binary, *arguments, "--data", str(server.data)],
        capture_output=True, text=True, env={**os.environ, **server.environment},
    )


def rows(server, sql):
    return server.request("POST", "/v1/sql", {"sql": sql})["rows"]


def fill(server):
    server.request("PUT", "/v1/tables/users", {
        "columns": [{"name": "id", "type": "int64"}, {"name": "n", "type": "int64"}], "primary_key": ["id"],
    })
    server.request("PUT", "/v1/tables/events", {
        "columns": [{"name": "n", "type": "int64"}, {"name": "text", "type": "string"}],
        "partition_by": ["bucket(4, n)"], "sort_by": ["n desc"],
    })


def write(server, turn):
    server.request("POST", "/v1/tables/users/rows", [{"id": n, "n": turn} for n in range(turn * 10, turn * 10 + 50)])
    server.request("POST", "/v1/tables/events/rows", [{"n": turn * 100 + n, "text": f"t{n}"} for n in range(100)])
    server.request("POST", "/v1/sql", {"sql": f"DELETE FROM events WHERE n % 17 = {turn % 17}"})


def is_equal(server):
    """What PyIceberg and DuckDB read is what SQL says, each row once."""
    for table in ("users", "events"):
        server.request("POST", f"/v1/tables/{table}/commit")
    verified = polynya(server, "lake", "verify")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    catalog = load_catalog("polynya", type="rest", uri=server.catalog, token=server.key, **{
        "s3.access-key-id": "key", "s3.secret-access-key": "secret",
    })
    with duckdb.connect() as reader:
        for extension in ("avro", "httpfs", "iceberg"):
            [path] = (Path(list(duckdb_ext.__path__)[0]) / "extensions").glob(f"*/*/{extension}.duckdb_extension")
            reader.execute(f"LOAD '{path}'")
        host = server.environment["POLYNYA_LAKE_S3_ENDPOINT"].removeprefix("http://")
        reader.execute(
            "CREATE SECRET s (TYPE s3, KEY_ID 'key', SECRET 'secret', REGION 'us-east-1', "
            f"ENDPOINT '{host}', URL_STYLE 'path', USE_SSL false)"
        )
        for table, columns in (("users", "id, n"), ("events", "n, text")):
            expected = [tuple(row) for row in rows(server, f"SELECT {columns} FROM {table} ORDER BY {columns}")]
            loaded = catalog.load_table(f"main.{table}")
            names = columns.split(", ")
            found = loaded.scan(selected_fields=tuple(names)).to_arrow().to_pylist()
            found = sorted(tuple(row[name] for name in names) for row in found)
            assert found == expected, f"PyIceberg: {table} has {len(found)} rows, {len(expected)} expected"
            found = reader.execute(
                f"SELECT {columns} FROM iceberg_scan('{loaded.metadata_location}') ORDER BY {columns}"
            ).fetchall()
            assert found == expected, f"DuckDB: {table} has {len(found)} rows, {len(expected)} expected"


def refused(server):
    """What a server says that does not start."""
    try:
        server.__enter__()
    except RuntimeError as error:
        server.__exit__()
        return str(error)
    server.__exit__()
    raise AssertionError("it started")


def tables_land(binary, scratch, proxy, client):
    with Server(binary, scratch / "lands", environment=environment(proxy, "lands")) as server:
        fill(server)
        for turn in range(12):
            write(server, turn)
        is_equal(server)
        assert not (server.data / "lake" / "main").exists(), "nothing of it is on this machine"
        # Another database is refused, whatever is in it.
        other = Server(binary, scratch / "other", environment=environment(proxy, "lands"))
        why = refused(other)
        assert "another database" in why and "polynya-warehouse.json" in why, why
        # Killed while it lands.
        for turn in range(12, 18):
            write(server, turn)
            time.sleep(0.05 * (turn - 11))
            server.kill()
            server.start()
        is_equal(server)
        # A dropped table leaves nothing.
        server.request("DELETE", "/v1/tables/users")
        until = time.monotonic() + 60
        while client.list_objects_v2(Bucket="bucket", Prefix="lands/main/users/").get("KeyCount"):
            assert time.monotonic() < until, "objects of a dropped table stay"
            time.sleep(0.2)


def failures_are_survived(binary, scratch, proxy):
    with Server(binary, scratch / "fails", environment=environment(proxy, "fails")) as server:
        fill(server)
        proxy.fault = "lossy"
        for turn in range(20):
            write(server, turn)
            time.sleep(0.2)
        proxy.fault = ""
        assert proxy.lost > 10, proxy.lost
        is_equal(server)
        # Away: writers and readers do not notice, and the lake catches up.
        proxy.fault = "away"
        for turn in range(20, 24):
            began = time.monotonic()
            write(server, turn)
            assert rows(server, "SELECT count(*) FROM events")[0][0] > 0
            assert time.monotonic() - began < 5, "nobody waits for the store"
        # It starts without it, too.
        server.kill()
        server.start()
        write(server, 24)
        proxy.fault = ""
        is_equal(server)


def careless_stores_are_refused(binary, scratch, proxy):
    proxy.fault = "careless"
    why = refused(Server(binary, scratch / "careless", environment=environment(proxy, "careless")))
    proxy.fault = ""
    assert "If-None-Match" in why, why


def main():
    binary, scratch = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    os.environ.update(SECRETS)
    store = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    store.start()
    try:
        _, port = store.get_host_and_port()
        client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1")
        client.create_bucket(Bucket="bucket")
        proxy = Proxy(port)
        tables_land(binary, scratch, proxy, client)
        failures_are_survived(binary, scratch, proxy)
        careless_stores_are_refused(binary, scratch, proxy)
    finally:
        store.stop()
    print("the lake in an object store: PyIceberg and DuckDB read what SQL says")


if __name__ == "__main__":
    main()
