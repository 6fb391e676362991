"""Tests the lake in an object store that speaks S3. PyIceberg and DuckDB must read every committed row, through failures
of the network and of the server. Unsafe stores are refused. A backup in the store is complete, or is not restored.

    objects.py POLYNYA SCRATCH [PORT]

POLYNYA is the built program, SCRATCH a directory that may be emptied. The store is moto's, on this machine, behind a proxy
that can lose conditions, answers and connections. With PORT it is an empty store on that port of this machine, with the
credentials `key` and `secret`.
"""

import http.client
import http.server
import json
import os
import random
import shutil
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
    """Forwards requests to the store, with the failures that `fault` selects."""

    daemon_threads = True

    def __init__(self, port):
        super().__init__(("127.0.0.1", 0), Handler)
        self.store_port = port
        # The kind of failure: "" (none), "careless" (conditions are dropped), "away" (503), "lossy" (some answers and some
        # requests are lost, except reads), "flaky" (reads too), or "spoils" (a byte of some uploads and downloads is changed).
        self.fault = ""
        self.random = random.Random(5)
        self.lost = 0
        self.spoiled = 0
        # The number of requests since the last failure that could have met one.
        self.since_fault = 0
        # Called with the number of each request before it is forwarded.
        self.watch = None
        self.requests = 0
        # Bytes returned to read requests.
        self.given = 0
        self.keys = set()
        # True if the store rejects a request of which a part was lost.
        self.checks_signatures = False
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_):
        """Ignores clients that were killed in the middle of a request."""

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
        server.requests += 1
        server.keys.add(self.headers.get("Authorization", "").partition("Credential=")[2].partition("/")[0])
        if server.watch:
            server.watch(server.requests)
        lossy = server.fault == "flaky" or server.fault == "lossy" and self.command in ("PUT", "POST", "DELETE")
        has_content = self.command == "PUT" and body or self.command == "GET" and "list-type" not in self.path
        spoils = server.fault == "spoils" and has_content and self.meets(0.15)
        if spoils and self.command == "PUT":
            body = self.spoil(body)
        loses = lossy and self.meets(0.25)
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
        server.given += len(content) if self.command == "GET" else 0
        if spoils and content and self.command == "GET":
            content = self.spoil(content)
        if loses:
            # The request was carried out, but its answer is lost.
            server.lost += 1
            return self.answer(500, [], b"")
        self.answer(answer.status, answer.getheaders(), content)

    def meets(self, share):
        """Tells whether a fault happens now: at random, but not much later than it is due."""
        server = self.server
        server.since_fault += 1
        if server.random.random() < share or server.since_fault * share > 1.5:
            server.since_fault = 0
            return True
        return False

    def spoil(self, content):
        self.server.spoiled += 1
        at = self.server.random.randrange(len(content))
        return content[:at] + bytes([content[at] ^ 1]) + content[at + 1:]

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
    """Asserts that PyIceberg and DuckDB read what SQL returns, each row once."""
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
    """Returns the message of a server that refuses to start."""
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
        # A warehouse of another database is refused, whatever its contents.
        other = Server(binary, scratch / "other", environment=environment(proxy, "lands"))
        why = refused(other)
        assert "another database" in why and "polynya-warehouse.json" in why, why
        # The server is killed during lake commits.
        for turn in range(12, 18):
            write(server, turn)
            time.sleep(0.05 * (turn - 11))
            server.kill()
            server.start()
        is_equal(server)
        # A dropped table leaves no objects.
        server.request("DELETE", "/v1/tables/users")
        until = time.monotonic() + 60
        while client.list_objects_v2(Bucket="bucket", Prefix="lands/main/users/").get("KeyCount"):
            assert time.monotonic() < until, "objects of a dropped table stay"
            time.sleep(0.2)


def tables_are_imported(binary, scratch, proxy, client):
    """Imports tables from the store, by location and by name in the catalog. Each byte is fetched once."""
    with Server(binary, scratch / "imports", environment=environment(proxy, "imports")) as server:
        fill(server)
        for turn in range(3):
            write(server, turn)
        is_equal(server)
        # The table has data besides the footers.
        server.request("PUT", "/v1/tables/large", {"columns": [{"name": "n", "type": "int64"}, {"name": "s", "type": "string"}]})
        for part in range(4):
            server.request("POST", "/v1/tables/large/rows", [
                {"n": n, "s": "%032x" % random.Random(n).getrandbits(128) * 3} for n in range(part * 20_000, (part + 1) * 20_000)
            ])
        server.request("POST", "/v1/tables/large/commit")
        metadata = load_catalog("polynya", type="rest", uri=server.catalog, token=server.key, **{
            "s3.access-key-id": "key", "s3.secret-access-key": "secret",
        }).load_table("main.events").metadata_location
        for source, table in (
            ("s3://bucket/imports/main/users", "users"), ("s3://bucket/imports/main/events/", "events"), (metadata, "events"),
            ("main.events", "events"), ("users", "users"),
        ):
            name = "copy_" + str(abs(hash(source)))
            imported = polynya(server, "lake", "import", source, name)
            assert imported.returncode == 0, imported.stdout + imported.stderr
            columns = "id, n" if table == "users" else "n, text"
            wanted = rows(server, f"SELECT {columns} FROM {table} ORDER BY {columns}")
            assert rows(server, f"SELECT {columns} FROM {name} ORDER BY {columns}") == wanted and wanted, source
            again = polynya(server, "lake", "import", source, name)
            assert again.returncode == 0 and "nothing new" in again.stdout, again.stdout + again.stderr
            assert polynya(server, "lake", "import", source + "/nowhere", "none").returncode == 1
        objects = objects_of(client, "s3://bucket/imports/main/large/data")
        size = sum(len(content) for content in objects.values())
        proxy.given = 0
        imported = polynya(server, "lake", "import", "s3://bucket/imports/main/large", "copied")
        assert imported.returncode == 0, imported.stdout + imported.stderr
        print(f"imported {size} bytes of data files, fetched {proxy.given}")
        # The new table's own lake commits are uploads, not reads.
        assert size > 1_000_000 and proxy.given < size * 1.6, (size, proxy.given)
        assert rows(server, "SELECT count(DISTINCT n) FROM copied") == [[80_000]]


def failures_are_survived(binary, scratch, proxy):
    with Server(binary, scratch / "fails", environment=environment(proxy, "fails")) as server:
        fill(server)
        proxy.fault = "lossy"
        # A busy machine makes fewer commits of as many writes.
        for turn in range(200):
            if turn >= 20 and proxy.lost > 10:
                break
            write(server, turn)
            time.sleep(0.2)
        proxy.fault = ""
        assert proxy.lost > 10, proxy.lost
        is_equal(server)
        # The store is away: writers and readers do not notice, and the lake catches up.
        proxy.fault = "away"
        for turn in range(20, 24):
            began = time.monotonic()
            write(server, turn)
            assert rows(server, "SELECT count(*) FROM events")[0][0] > 0
            assert time.monotonic() - began < 5, "nobody waits for the store"
        # The server also starts without the store.
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


def backup(server, proxy, place, **environment):
    return subprocess.run(
        [server.binary, "backup", place, "--s3-endpoint", proxy.url, "--s3-region", "us-east-1", "--data", str(server.data)],
        capture_output=True, text=True, env={**os.environ, **environment},
    )


def restore(binary, proxy, place, dest, *more):
    return subprocess.run(
        [binary, "restore", place, str(dest), "--s3-endpoint", proxy.url, "--s3-region", "us-east-1", *more],
        capture_output=True, text=True, env=os.environ,
    )


def is_restored(server, proxy, place, dest, *more, tables=("users", "events", "large")):
    """Asserts that a restored directory has the rows of the server, under the same row ids."""
    done = restore(server.binary, proxy, place, dest, *more)
    assert done.returncode == 0, done.stdout + done.stderr
    for table in tables:
        sql = f"SELECT _row_id, * FROM {table} ORDER BY _row_id"
        found = subprocess.run(
            [server.binary, "sql", "--data", str(dest), "--json", sql], capture_output=True, text=True, env=os.environ,
        )
        expected = subprocess.run(
            [server.binary, "sql", "--data", str(server.data), "--json", sql], capture_output=True, text=True, env=os.environ,
        )
        assert found.returncode == 0 and expected.returncode == 0, found.stderr + expected.stderr
        assert found.stdout == expected.stdout and found.stdout, f"{table} of {place}"
    sound = subprocess.run([server.binary, "doctor", str(dest)], capture_output=True, text=True, env=os.environ)
    assert sound.returncode == 0, sound.stdout + sound.stderr


def objects_of(client, place):
    prefix = place.removeprefix("s3://bucket/") + "/"
    found = client.list_objects_v2(Bucket="bucket", Prefix=prefix).get("Contents", [])
    return {item["Key"]: client.get_object(Bucket="bucket", Key=item["Key"])["Body"].read() for item in found}


def backups_are_whole_or_none(binary, scratch, proxy, client):
    proxy.fault = ""
    with Server(binary, scratch / "backed") as server:
        fill(server)
        for turn in range(6):
            write(server, turn)
        # The table is large enough for a multipart upload.
        server.request("PUT", "/v1/tables/large", {"columns": [{"name": "n", "type": "int64"}, {"name": "s", "type": "string"}]})
        for part in range(8):
            server.request("POST", "/v1/tables/large/rows", [
                {"n": n, "s": "%032x" % random.Random(n).getrandbits(128) * 3} for n in range(part * 20_000, (part + 1) * 20_000)
            ])
        proxy.keys.clear()
        taken = backup(server, proxy, "s3://bucket/backups/monday", AWS_ACCESS_KEY_ID="of-the-command")
        assert taken.returncode == 0, taken.stdout + taken.stderr
        print(taken.stdout)
        assert proxy.keys == {"of-the-command"}, "the keys are those of who asks"
        assert any(len(content) > 9 << 20 for content in objects_of(client, "s3://bucket/backups/monday").values())
        is_restored(server, proxy, "s3://bucket/backups/monday", scratch / "monday")
        again = backup(server, proxy, "s3://bucket/backups/monday")
        assert again.returncode == 1 and "holds a backup already" in again.stderr, again.stderr

        # Each object is damaged and removed in turn.
        whole = objects_of(client, "s3://bucket/backups/monday")
        for key, content in whole.items():
            if key.endswith("polynya-backup.json"):
                continue
            middle = len(content) // 2
            client.put_object(Bucket="bucket", Key=key, Body=content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1:])
            refused = restore(binary, proxy, "s3://bucket/backups/monday", scratch / "none")
            assert refused.returncode == 1 and key in refused.stderr, (key, refused.stderr)
            client.delete_object(Bucket="bucket", Key=key)
            refused = restore(binary, proxy, "s3://bucket/backups/monday", scratch / "none")
            assert refused.returncode == 1, refused.stdout
            assert ("begun there and not finished" if key.endswith("BACKUP") else key) in refused.stderr, (key, refused.stderr)
            assert not (scratch / "none").exists(), "half a directory is left"
            client.put_object(Bucket="bucket", Key=key, Body=content)
        is_restored(server, proxy, "s3://bucket/backups/monday", scratch / "mended")

        # Answers and requests are lost, and bytes change on the way: uploads are repeated until the store has what was sent.
        for fault in ("flaky", "spoils"):
            proxy.fault = fault
            before = proxy.lost + proxy.spoiled
            taken = backup(server, proxy, f"s3://bucket/backups/{fault}")
            proxy.fault = ""
            assert proxy.lost + proxy.spoiled > before
            if taken.returncode != 0:
                print(fault, taken.stderr)
                refused = restore(binary, proxy, f"s3://bucket/backups/{fault}", scratch / "none")
                assert refused.returncode == 1, "it said that it failed, and looks whole"
                taken = backup(server, proxy, f"s3://bucket/backups/{fault}")
                assert taken.returncode == 0, taken.stderr
            is_restored(server, proxy, f"s3://bucket/backups/{fault}", scratch / fault)

        # A store that ignores conditions is refused for a backup.
        if not proxy.checks_signatures:
            proxy.fault = "careless"
            refused = backup(server, proxy, "s3://bucket/backups/careless")
            proxy.fault = ""
            assert refused.returncode == 1 and "If-None-Match" in refused.stderr, refused.stderr

        # The store goes away midway and stays away: the backup fails, and its remains are not a backup. The next attempt
        # succeeds.
        proxy.requests = 0
        proxy.watch = lambda number: setattr(proxy, "fault", "away" if number > 20 else "")
        began = time.monotonic()
        failed = backup(server, proxy, "s3://bucket/backups/away")
        proxy.watch, proxy.fault = None, ""
        assert failed.returncode == 1, failed.stdout
        print(f"told after {time.monotonic() - began:.0f} s: {failed.stderr}")
        refused = restore(binary, proxy, "s3://bucket/backups/away", scratch / "none")
        assert refused.returncode == 1 and "begun there and not finished" in refused.stderr, refused.stderr
        print(refused.stderr)
        taken = backup(server, proxy, "s3://bucket/backups/away")
        # The remains that the next attempt can use depend on the progress so far; `-p polynya-engine sent` tests that.
        assert taken.returncode == 0, taken.stdout + taken.stderr
        print(taken.stdout)
        is_restored(server, proxy, "s3://bucket/backups/away", scratch / "away")

        # The server is killed during the upload.
        for requests in (5, 12, 25, 33):
            place = f"s3://bucket/backups/killed-{requests}"
            proxy.requests = 0
            proxy.watch = lambda number: number == requests and server.kill()
            killed = backup(server, proxy, place)
            proxy.watch = None
            server.start()
            if killed.returncode != 0:
                refused = restore(binary, proxy, place, scratch / "none")
                assert refused.returncode == 1, refused.stdout
                taken = backup(server, proxy, place)
                assert taken.returncode == 0, taken.stderr
            assert not (server.data / "outgoing").exists()
            is_restored(server, proxy, place, scratch / f"killed-{requests}")

        # Another database may not continue the backup.
        with Server(binary, scratch / "stranger") as stranger:
            fill(stranger)
            proxy.requests = 0
            proxy.watch = lambda number: setattr(proxy, "fault", "away" if number > 15 else "")
            failed = backup(server, proxy, "s3://bucket/backups/ours")
            proxy.watch, proxy.fault = None, ""
            assert failed.returncode == 1
            refused = backup(stranger, proxy, "s3://bucket/backups/ours")
            assert refused.returncode == 1 and "another database" in refused.stderr, refused.stderr
            taken = backup(server, proxy, "s3://bucket/backups/ours")
            assert taken.returncode == 0, taken.stderr
            is_restored(server, proxy, "s3://bucket/backups/ours", scratch / "ours")


def the_archive_carries_a_backup_forward(binary, scratch, proxy, client):
    settings = {**environment(proxy, ""), "POLYNYA_LAKE_WAREHOUSE": "", "POLYNYA_LOG_ARCHIVE": "s3://bucket/archive"}
    with Server(binary, scratch / "archived", environment=settings) as server:
        fill(server)
        write(server, 0)
        taken = backup(server, proxy, "s3://bucket/backups/first")
        assert taken.returncode == 0, taken.stderr
        for turn in range(1, 6):
            write(server, turn)
        # Stopping archives the rest. The server starts even if the store does not answer.
        server.stop()
        proxy.fault = "away"
        server.start()
        write(server, 6)
        # Small commits are archived after a minute, so the failure shows only then.
        end = time.monotonic() + 120
        while (ready := server.request("GET", "/ready")["parts"]["archive"])["ok"] and time.monotonic() < end:
            time.sleep(0.5)
        assert not ready["ok"] and ready["detail"]["path"].startswith("s3://bucket/archive/"), ready
        proxy.fault = "flaky"
        until = time.monotonic() + 120
        while not server.request("GET", "/ready")["parts"]["archive"]["ok"]:
            assert time.monotonic() < until, "the archive does not go on"
            time.sleep(0.2)
        proxy.fault = ""
        server.stop()
        archive = ("--archive", "s3://bucket/archive")
        is_restored(server, proxy, "s3://bucket/backups/first", scratch / "carried", *archive, tables=("users", "events"))
        server.start()


def main():
    binary, scratch = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    shutil.rmtree(scratch, ignore_errors=True)
    os.environ.update(SECRETS)
    store, port = None, int(sys.argv[3]) if len(sys.argv) > 3 else 0
    if not port:
        store = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        store.start()
        _, port = store.get_host_and_port()
    try:
        client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1")
        client.create_bucket(Bucket="bucket")
        proxy = Proxy(port)
        tables_land(binary, scratch, proxy, client)
        tables_are_imported(binary, scratch, proxy, client)
        failures_are_survived(binary, scratch, proxy)
        # Other stores reject a request whose signed content is incomplete.
        proxy.checks_signatures = store is None
        if not proxy.checks_signatures:
            careless_stores_are_refused(binary, scratch, proxy)
        backups_are_whole_or_none(binary, scratch, proxy, client)
        the_archive_carries_a_backup_forward(binary, scratch, proxy, client)
    finally:
        if store is not None:
            store.stop()
    print("backups in an object store: what is restored is what was there, or nothing is restored")
    print("the lake in an object store: PyIceberg and DuckDB read what SQL says")


if __name__ == "__main__":
    main()
