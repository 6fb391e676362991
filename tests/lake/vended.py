"""Tests the lake in an object store without an access key of its own. The catalog hands out credentials for each table,
which soon expire. Polynya commits to the lake with them, and PyIceberg must read what SQL returns.

    vended.py POLYNYA SCRATCH

POLYNYA is the built program, SCRATCH a directory that may be emptied. The store is moto's, on this machine, behind a proxy
that checks credentials. The catalog is a second server; a proxy before it adds the credentials to its answers.
"""

import http.client
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "catalog"))

import boto3
from moto.server import ThreadedMotoServer
from pyiceberg.catalog import load_catalog

from catalog import fill, land, rows, write
from server import Server

BUCKET = "bucket"
# Lifetime of credentials, in seconds.
LIFE = 8


class QuietServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, handler):
        super().__init__(("127.0.0.1", 0), handler)
        self.lock = threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_):
        """Ignores clients that were killed in the middle of a request."""

    @property
    def address(self):
        return f"127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def body(self):
        length = self.headers.get("Content-Length")
        return self.rfile.read(int(length)) if length else None

    def ask(self, host, body):
        headers = {name: value for name, value in self.headers.items() if name.lower() != "content-length"}
        to = http.client.HTTPConnection(host, timeout=60)
        to.request(self.command, self.path, body, headers)
        answer = to.getresponse()
        content = answer.read()
        to.close()
        return answer.status, answer.getheaders(), content

    def answer(self, status, headers, content):
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                self.send_header(name, value)
        length = dict((name.lower(), value) for name, value in headers).get("content-length")
        self.send_header("Content-Length", length if self.command == "HEAD" and length else str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


class CredentialProxy(QuietServer):
    """A proxy before the store that checks the credentials of each request: their path, their token and their expiry."""

    def __init__(self, port):
        self.store = f"127.0.0.1:{port}"
        # For each key id: the allowed path in the store, the token, and the expiry.
        self.keys = {"owner": ("/", None, float("inf"))}
        self.secrets = []
        self.used = set()
        self.refused = []
        super().__init__(CredentialHandler)

    def make(self, path, life):
        """Makes credentials for the objects below a path of the store."""
        with self.lock:
            number = len(self.secrets)
            key, secret, token = f"KEY{number}", f"secret-of-{number}-hush", f"token-of-{number}-hush"
            ends = time.time() + life
            self.keys[key] = (path, token, ends)
            self.secrets += [secret, token]
        return {
            "s3.access-key-id": key, "s3.secret-access-key": secret, "s3.session-token": token,
            "s3.session-token-expires-at-ms": str(int(ends * 1000)),
        }

    def revoke(self):
        with self.lock:
            self.keys = {"owner": self.keys["owner"]}


class CredentialHandler(Handler):
    def forward(self):
        body = self.body()
        why = self.why_not(body)
        if why:
            self.server.refused.append((self.command, self.path, *why))
            code, text = why
            text = f"<Error><Code>{code}</Code><Message>{text}</Message></Error>".encode()
            return self.answer(400 if code == "ExpiredToken" else 403, [], text)
        self.answer(*self.ask(self.server.store, body))

    def why_not(self, body):
        """Returns the reason for refusing a request, as a code and a detail."""
        key = self.headers.get("Authorization", "").partition("Credential=")[2].partition("/")[0]
        self.server.used.add(key)
        with self.server.lock:
            found = self.server.keys.get(key)
        if not found:
            return "InvalidAccessKeyId", key
        path, token, ends = found
        if token != self.headers.get("x-amz-security-token"):
            return "InvalidToken", key
        if time.time() >= ends:
            # Amazon repeats the token in its answer.
            return "ExpiredToken", f"<Token-0>{token}</Token-0>"
        asked = urllib.parse.urlsplit(self.path)
        query = urllib.parse.parse_qs(asked.query, keep_blank_values=True)
        paths = [urllib.parse.unquote(asked.path)]
        if "list-type" in query:
            paths = [f"/{BUCKET}/{query['prefix'][0]}"]
        elif "delete" in query:
            paths = [f"/{BUCKET}/{name}" for name in re.findall("<Key>([^<]*)</Key>", body.decode())]
        if not all(one.startswith(path) for one in paths):
            return "AccessDenied", f"{key} {paths}"
        return None

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = forward


class CatalogProxy(QuietServer):
    """A proxy before the catalog that adds credentials, and maps its directory to the bucket."""

    def __init__(self, catalog, there, door):
        self.catalog, self.there, self.door = catalog, str(there), door
        # The kind of failure: "" (none) or "out" (there are no credentials).
        self.fault = ""
        self.wanted = 0
        super().__init__(CatalogHandler)

    @property
    def url(self):
        return f"http://{self.address}/iceberg"


class CatalogHandler(Handler):
    def forward(self):
        server, body = self.server, self.body()
        wants = self.headers.get("X-Iceberg-Access-Delegation") == "vended-credentials"
        server.wanted += wants
        if wants and server.fault == "out":
            told = {"error": {"code": 503, "type": "ServiceFailureException", "message": "no credentials today"}}
            return self.answer(503, [("Content-Type", "application/json")], json.dumps(told).encode())
        if body:
            body = body.replace(f"s3://{BUCKET}".encode(), server.there.encode())
        try:
            status, headers, content = self.ask(server.catalog.url.removeprefix("http://"), body)
        except (OSError, http.client.HTTPException):
            return self.answer(502, [], b"")
        for written in (f"file://{server.there}", server.there):
            content = content.replace(written.encode(), f"s3://{BUCKET}".encode())
        if wants and status == 200 and b'"metadata-location"' in content:
            content = self.vended(json.loads(content))
        self.answer(status, headers, content)

    def vended(self, told):
        server, location = self.server, told["metadata"]["location"]
        path = "/" + location.removeprefix("s3://") + "/"
        is_ours = self.headers.get("User-Agent", "").startswith("polynya/")
        right, wrong = server.door.make(path, LIFE if is_ours else 600), {"s3.access-key-id": "wrong", "s3.secret-access-key": "wrong"}
        reached = {
            "s3.endpoint": f"http://{server.door.address}", "s3.path-style-access": "true",
            "s3.region": "us-east-1", "client.region": "us-east-1",
        }
        # The longest matching prefix has precedence over `config`; other clients may ignore the prefixes.
        told["config"] = {**reached, **(wrong if is_ours else right)}
        told["storage-credentials"] = [
            {"prefix": f"s3://{BUCKET}", "config": wrong if is_ours else right},
            {"prefix": location, "config": right},
            {"prefix": location + "/data/x", "config": wrong},
        ]
        return json.dumps(told).encode()

    do_GET = do_POST = do_DELETE = do_HEAD = forward


def is_equal(server, vendor):
    """Asserts that PyIceberg, with credentials from the catalog, and `verify` find what SQL returns."""
    land(server)
    verified = subprocess.run(
        [server.binary, "lake", "verify", "--data", str(server.data)],
        capture_output=True, text=True, env={**os.environ, **server.environment},
    )
    assert verified.returncode == 0, verified.stdout + verified.stderr
    reader = load_catalog("there", type="rest", uri=vendor.url, token=vendor.catalog.key)
    for table, columns in (("users", "id, n"), ("events", "n, text")):
        expected = [tuple(row) for row in rows(server, f"SELECT {columns} FROM {table} ORDER BY {columns}")]
        names = columns.split(", ")
        loaded = reader.load_table(f"main.{table}")
        assert loaded.location().startswith(f"s3://{BUCKET}/"), loaded.location()
        found = loaded.scan(selected_fields=tuple(names)).to_arrow().to_pylist()
        found = sorted(tuple(row[name] for name in names) for row in found)
        assert found == expected, f"PyIceberg: {table} has {len(found)} rows, {len(expected)} expected"


def shows_no_secret(server, door):
    log = (server.directory / "log").read_text()
    shown = [secret for secret in door.secrets if secret in log]
    assert not shown, shown


def lands(server, vendor, door):
    fill(server)
    for turn in range(8):
        write(server, turn)
        time.sleep(0.5)
    is_equal(server, vendor)
    # Several lifetimes later.
    for turn in range(8, 8 + 3 * LIFE):
        write(server, turn)
        time.sleep(1)
    is_equal(server, vendor)
    expired = [one for one in door.refused if one[2] == "ExpiredToken"]
    # A request that was long on its way may have used expired credentials.
    assert len(expired) < 3, f"used beyond their end: {expired}"
    assert "wrong" not in door.used and "owner" not in door.used, door.used
    assert len(door.used) > 6, door.used
    # After a revocation the current credentials fail, and new ones are requested when these expire.
    door.revoke()
    write(server, 30)
    is_equal(server, vendor)
    # No new credentials are handed out while the current ones expire: only the lake waits, and gives the reason.
    vendor.fault = "out"
    time.sleep(LIFE + 1)
    began = time.monotonic()
    write(server, 31)
    assert time.monotonic() - began < 5, "nobody waits for credentials"
    try:
        server.request("POST", "/v1/tables/events/commit?deadline_ms=5000")
        raise AssertionError("it landed without credentials")
    except urllib.error.HTTPError as error:
        said = error.read().decode()
        assert "have expired" in said and "no credentials today" in said, said
    vendor.fault = ""
    is_equal(server, vendor)
    # The lake also continues after a kill.
    server.kill()
    server.start()
    write(server, 32)
    is_equal(server, vendor)


def names(store):
    listed = store.list_objects_v2(Bucket=BUCKET, MaxKeys=1000).get("Contents", [])
    return [one["Key"] for one in listed]


def main():
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    binary, scratch = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    shutil.rmtree(scratch, ignore_errors=True)
    there = scratch / "there"
    there.mkdir(parents=True)
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    moto.start()
    port = moto.get_host_and_port()[1]
    store = boto3.client(
        "s3", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1",
        aws_access_key_id="owner", aws_secret_access_key="secret",
    )
    store.create_bucket(Bucket=BUCKET)
    door = CredentialProxy(port)
    with Server(binary, scratch / "catalog", locations=[there]) as catalog:
        vendor = CatalogProxy(catalog, there, door)
        environment = {
            "POLYNYA_LAKE_CATALOG": vendor.url,
            "POLYNYA_LAKE_CATALOG_TOKEN": catalog.key,
            "POLYNYA_LAKE_WAREHOUSE": f"s3://{BUCKET}/lake",
        }
        with Server(binary, scratch / "lands", environment=environment) as server:
            lands(server, vendor, door)
            found = names(store)
            assert found and all(re.match("lake/main/(users|events)-[0-9a-f]+/", name) for name in found), found
            assert not [name for name in found if "polynya-" in name], found
            for table in ("users", "events"):
                server.request("DELETE", f"/v1/tables/{table}")
            until = time.monotonic() + 60
            while names(store):
                assert time.monotonic() < until, f"files of dropped tables stay: {names(store)}"
                time.sleep(0.2)
            shows_no_secret(server, door)
        # With an access key of its own, the server asks the catalog for no credentials.
        door.used.clear()
        wanted = vendor.wanted
        own = {
            **environment,
            "POLYNYA_LAKE_WAREHOUSE": f"s3://{BUCKET}/own",
            "POLYNYA_LAKE_S3_ENDPOINT": f"http://{door.address}",
            "AWS_ACCESS_KEY_ID": "owner", "AWS_SECRET_ACCESS_KEY": "secret",
        }
        with Server(binary, scratch / "own", environment=own) as server:
            fill(server)
            write(server, 0)
            land(server)
            assert door.used == {"owner"} and vendor.wanted == wanted, (door.used, vendor.wanted - wanted)
            assert "own/polynya-warehouse.json" in names(store)
    print("the lake with credentials of its catalog: PyIceberg reads there what SQL says")


if __name__ == "__main__":
    main()
