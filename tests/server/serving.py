"""Real servers on loopback for the tests of the service."""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import uvicorn
from kernel_bandits_server.app import build_app
from kernel_bandits_server.settings import parse_settings
from kernel_bandits_server.worker import Runtime

LOOP = """\
[loops.offers]
exploration_floor = 0.2
silence = { after = 3600 }
options = { kernel = { name = "Gaussian", lengthscale = 0.5 } }
[loops.offers.context]
age = { kind = "Numeric", range = [0, 100] }
country = { kind = "Categorical" }
[loops.offers.arms]
names = ["red", "blue", "green"]
[service]
lag = 0.05
snapshot_events = 200
"""
ROW = {"age": 30.0, "country": "FR"}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def call(address, method, path, body=None, headers=None, raw=None):
    """Status and JSON (or bytes) of one request."""
    data = raw if raw is not None else None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{address}{path}", data, headers or {}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            status, content = response.status, response.read()
    except urllib.error.HTTPError as error:
        status, content = error.code, error.read()
    try:
        return status, json.loads(content) if content else None
    except ValueError:
        return status, content


class Local:
    """A server in a thread of this process."""

    def __init__(self, database, text=LOOP, keys=None):
        self.runtime = Runtime(parse_settings(text), str(database))
        self.address = f"http://127.0.0.1:{free_port()}"
        app = build_app(self.runtime, keys)
        config = uvicorn.Config(app, port=int(self.address.rpartition(":")[2]), log_config=None, access_log=False)
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        wait_until_ready(self.address)

    def __call__(self, method, path, body=None, **options):
        return call(self.address, method, path, body, **options)

    def events(self):
        """The number of events in the log; the model may be a moment behind."""
        events = self.runtime.store.read("offers")
        return events[-1].number if events else 0

    def stop(self):
        self.server.should_exit = True
        self.thread.join(20)


class Process:
    """A server in a process of its own, to be killed."""

    def __init__(self, file, database=None, port=None, workers=1, wait=True):
        self.port = port or free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "kernel_bandits_server", str(file), "--port", str(self.port)]
        command += ["--database", str(database)] if database else []
        command += ["--workers", str(workers)] if workers > 1 else []
        self.errors = Path(f"{file}.{self.port}.log").open("ab")  # noqa: SIM115 (closed with the process)
        self.process = subprocess.Popen(command, stderr=self.errors, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})
        # should a test fail before it stops the server itself
        atexit.register(self.process.kill)
        if wait:
            wait_until_ready(self.address)

    def kill(self, how=signal.SIGKILL):
        self.process.send_signal(how)
        self.process.wait(30)
        atexit.unregister(self.process.kill)
        self.errors.close()


def wait_until_ready(address, seconds=60):
    for _ in range(int(seconds / 0.05)):
        try:
            if call(address, "GET", "/readyz")[0] == 200:
                return
        except OSError:
            pass
        time.sleep(0.05)
    raise AssertionError(f"{address} did not get ready")
