"""A server for one test, on a free port of this machine, in a directory that is removed after the test."""

import json
import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path


class Server:
    """Started by `with`. `locations`: directories besides the warehouse in which tables may be; `environment`: further
    environment variables."""

    def __init__(self, binary, directory, locations=(), environment=None):
        self.environment = environment or {}
        self.binary = str(binary)
        self.directory = Path(directory)
        self.locations = list(locations)
        self.process = None

    def __enter__(self):
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        self.start()
        self.key = self.new_key("admin", "admin")
        return self

    def start(self):
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("POLYNYA_")},
            "POLYNYA_LAKE_LOCATIONS": ",".join(map(str, self.locations)),
            "POLYNYA_LAKE_COMMIT_WAIT": "200ms",
            **self.environment,
        }
        self.log = open(self.directory / "log", "ab")
        data = ["--data", str(self.data)]
        self.process = subprocess.Popen(
            [self.binary, "serve", *data, "--listen", "127.0.0.1:0"],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, env=environment,
        )
        where = self.data / "server.json"
        until = time.monotonic() + 60
        while time.monotonic() < until:
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended: {(self.directory / 'log').read_text()}")
            try:
                said = json.loads(where.read_text())
                if said.get("pid") == self.process.pid:
                    self.url = said["url"]
                    self.request("GET", "/health", key=None)
                    return
            except (OSError, ValueError, KeyError, urllib.error.URLError):
                pass
            time.sleep(0.05)
        raise RuntimeError("the server did not start within a minute")

    @property
    def data(self):
        return self.directory / "data"

    @property
    def catalog(self):
        """The address of the catalog that clients are given."""
        return f"{self.url}/iceberg"

    def new_key(self, name, scope, *more):
        made = subprocess.run(
            [self.binary, "key", "create", name, "--scope", scope, *more, "--data", str(self.data), "--json"],
            check=True, capture_output=True, text=True,
        )
        return json.loads(made.stdout)["secret"]

    def request(self, method, path, body=None, key=""):
        """Returns the answer to a request: JSON, or None. `key`: another API key, or None to send none."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method)
        request.add_header("Content-Type", "application/json")
        if key is not None:
            request.add_header("Authorization", f"Bearer {key or self.key}")
        with urllib.request.urlopen(request, timeout=120) as answer:
            text = answer.read()
        return json.loads(text) if text.strip() else None

    def kill(self):
        # A thread that sees the process end may start it again at once, so the log is taken before.
        log = self.log
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        log.close()

    def stop(self):
        """Stops the server as `kill -TERM` does, the documented way."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()

    def __exit__(self, *_):
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)
