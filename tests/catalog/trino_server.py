"""A Trino for one test: one node on a free port of this machine, queried over its HTTP API."""

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

# Less memory than Trino's default, and only the quick JIT compiler: the statements of these tests are cheap.
JVM = """
    -Xmx1500M -XX:TieredStopAtLevel=1 -XX:+ExitOnOutOfMemoryError -XX:ReservedCodeCacheSize=256M
    -XX:-OmitStackTraceInFastThrow -XX:+EnableDynamicAgentLoading -Djdk.attach.allowAttachSelf=true
    -Djdk.nio.maxCachedBufferSize=2000000 -Dfile.encoding=UTF-8 -Duser.timezone=UTC
    --add-modules=jdk.incubator.vector --enable-native-access=ALL-UNNAMED --sun-misc-unsafe-memory-access=allow
""".split()
START_SECONDS = 180
STATEMENT_SECONDS = 180


class Refused(Exception):
    """A statement that Trino or the catalog refused, with the message."""


class Trino:
    """Started by `with`. `home`: the directory of the unpacked Trino; `catalogs`: the properties of each catalog, by name."""

    def __init__(self, home, java, directory, catalogs):
        self.home, self.java, self.directory = Path(home).absolute(), str(java), Path(directory).absolute()
        self.catalogs = catalogs

    def __enter__(self):
        shutil.rmtree(self.directory, ignore_errors=True)
        (self.directory / "catalog").mkdir(parents=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.write("config", {
            "node.environment": "test", "node.bind-ip": "127.0.0.1", "node.internal-address": "127.0.0.1",
            "coordinator": "true", "node-scheduler.include-coordinator": "true",
            "http-server.http.port": port, "discovery.uri": self.url,
            "plugin.dir": self.home / "plugin", "catalog.config-dir": self.directory / "catalog",
            "query.max-memory-per-node": "400MB", "memory.heap-headroom-per-node": "400MB", "task.concurrency": "2",
        })
        for name, properties in self.catalogs.items():
            self.write(f"catalog/{name}", properties)
        self.log = open(self.directory / "log", "wb")
        self.process = subprocess.Popen(
            [self.java, *JVM, f"-Dconfig={self.directory / 'config.properties'}", "-cp", f"{self.home}/lib/*",
             "io.trino.server.TrinoServer"],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, cwd=self.directory,
            env={name: value for name, value in os.environ.items() if "JAVA" not in name},
        )
        try:
            self.wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def write(self, name, properties):
        lines = [f"{key}={value}\n" for key, value in properties.items()]
        (self.directory / f"{name}.properties").write_text("".join(lines))

    def wait(self):
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            if self.process.poll() is not None:
                break
            try:
                with urllib.request.urlopen(f"{self.url}/v1/info", timeout=10) as answer:
                    if not json.loads(answer.read())["starting"]:
                        return
            except (OSError, ValueError, KeyError):
                pass
            time.sleep(0.2)
        raise RuntimeError(f"Trino did not start: {(self.directory / 'log').read_text(errors='replace')[-5000:]}")

    def ask(self, sql, session=()):
        """Returns an answer's columns as pairs of name and type, and its rows. `session`: properties, `name=value`."""
        headers = {
            "X-Trino-User": "test", "X-Trino-Source": "polynya", "X-Trino-Catalog": "polynya", "X-Trino-Time-Zone": "UTC",
            "X-Trino-Client-Capabilities": "PARAMETRIC_DATETIME", "X-Trino-Session": ",".join(session),
        }
        request = urllib.request.Request(f"{self.url}/v1/statement", data=sql.encode(), headers=headers, method="POST")
        until, columns, rows = time.monotonic() + STATEMENT_SECONDS, [], []
        while True:
            with urllib.request.urlopen(request, timeout=STATEMENT_SECONDS) as answer:
                said = json.loads(answer.read())
            if "error" in said:
                raise Refused(reason(said["error"]))
            columns = said.get("columns") or columns
            rows += said.get("data") or []
            if "nextUri" not in said:
                return [(column["name"], column["typeSignature"]) for column in columns], rows
            assert time.monotonic() < until, f"`{sql}` takes longer than {STATEMENT_SECONDS} s: {said['stats']['state']}"
            request = urllib.request.Request(said["nextUri"], headers={"X-Trino-User": "test"})

    def all(self, sql, *session):
        return [tuple(row) for row in self.ask(sql, session)[1]]

    def one(self, sql, *session):
        [row] = self.all(sql, *session)
        return row

    def plain(self, sql, *json_columns):
        """Returns rows in the form of Polynya's SQL answers. Columns of JSON are text in Trino."""
        columns, rows = self.ask(sql)
        columns = [(kind, name in json_columns) for name, kind in columns]
        return [
            [json.loads(value) if is_json and value else plain(value, kind) for (kind, is_json), value in zip(columns, row)]
            for row in rows
        ]

    def refused(self, sql, *session):
        try:
            self.ask(sql, session)
        except Refused as error:
            return str(error)
        raise AssertionError(f"`{sql}` was taken")

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


def reason(error):
    """Returns an error's message with those of its causes."""
    said, failure = [error.get("message", "")], error.get("failureInfo")
    while failure:
        said.append(failure.get("message") or failure.get("type", ""))
        failure = failure.get("cause")
    return "; ".join(dict.fromkeys(said))


def plain(value, kind):
    """Converts a value of Trino to the form of Polynya's JSON."""
    if value is None:
        return None
    name, inner = kind["rawType"], [of["value"] for of in kind["arguments"]]
    if name == "array":
        return [plain(one, inner[0]) for one in value]
    if name == "row":
        return {of["fieldName"]["name"]: plain(one, of["typeSignature"]) for of, one in zip(inner, value)}
    if name.startswith("timestamp"):
        day, time_of_day, _ = value.split(" ")
        return f"{day}T{time_of_day}Z"
    if name == "bigint" and abs(value) > 2**53:
        return str(value)
    return value
