"""Load on the decision service: a closed loop of 64 connections, ten arms, twenty columns, 200 anchors, or others.

Decisions are compared with an empty endpoint of the same framework in the same process that writes one row, in blocks
that take turns. A decision is parsed, chosen, committed and counted by the model; an empty request is parsed and
committed.

Run: python benchmarks/service.py [--seconds 5] [--blocks 4] [--events 0] [--database ADDRESS]
Memory: python benchmarks/service.py --events 1000000 --seconds 60 --empty-seconds 0.1 --columns 3 --arms 3 --anchors 20
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import queue
import random
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")

import numpy as np
import uvicorn
from kernel_bandits_server.app import build_app
from kernel_bandits_server.events import Event
from kernel_bandits_server.messages import Body, Outcome
from kernel_bandits_server.planning import Command
from kernel_bandits_server.serve import spare_collections
from kernel_bandits_server.settings import parse_settings
from kernel_bandits_server.store import Store
from kernel_bandits_server.worker import Runtime
from litestar import post
from litestar.params import JSONBody
from measure import markdown
from msgspec import Struct

# Those that send rewards, a thousand in a request.
BULK_CONNECTIONS = 4
LOOP = """
[loops.load]
exploration_floor = 0.05
anticipates = {anticipates}
[loops.load.options]
kernel = {{ name = "Gaussian", lengthscale = 1.0 }}
dictionary = {{ rule = "Kors", max_size = {anchors}, history = "none" }}
[loops.load.context]
{columns}
[loops.load.arms]
names = {names}
[service.limits]
pending = 10000000
"""


def loop_file(given: argparse.Namespace) -> str:
    """Return the loop's file."""
    return LOOP.format(
        anticipates=str(not given.ignore_pending).lower(),
        anchors=given.anchors,
        columns="\n".join(f'x{i} = {{ kind = "Numeric", range = [0, 1] }}' for i in range(given.columns)),
        names=[f"arm{i}" for i in range(given.arms)],
    )


class Nothing(Struct, forbid_unknown_fields=True):
    """The body of an empty request."""


class RowWriter:
    """The empty endpoint: writes one row for each request, many in one transaction, as a worker does."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._queue: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._number = 0
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            commands = [self._queue.get()]
            while len(commands) < 256 and not self._queue.empty():
                commands.append(self._queue.get_nowait())
            with self._store.append("empty") as log:
                first = self._number + 1
                events = [Event("decision", f"e{first + i}", {}, 0.0, first + i) for i in range(len(commands))]
                log.append(events)
            self._number += len(commands)
            self._loop.call_soon_threadsafe(self._finish, commands)

    @staticmethod
    def _finish(commands: list[Command]) -> None:
        for command in commands:
            assert command.done is not None
            command.done()

    async def write(self) -> None:
        """Write a row."""
        self._loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = self._loop.create_future()
        self._queue.put(Command(done=lambda: future.set_result(None)))
        await future


def run_server(given: argparse.Namespace) -> None:
    port, database = given.serve, given.database
    runtime = Runtime(parse_settings(loop_file(given)), database)
    writer = RowWriter(Store(database))

    @post("/v1/empty", dto=Body[Nothing], return_dto=None)
    async def empty(data: JSONBody[Nothing]) -> Outcome:
        del data  # it was read
        await writer.write()
        return Outcome("", "written")

    app = build_app(runtime)
    app.register(empty)
    spare_collections()
    uvicorn.run(app, port=port, log_config=None, access_log=False, server_header=False, date_header=False)


class Connection(asyncio.Protocol):
    """One caller: sends the next request when the response to the last one has come."""

    def __init__(self, load: Load) -> None:
        self._load, self._buffer = load, b""
        self._sent = 0.0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._next()

    def _next(self) -> None:
        request = self._load.next_request()
        if request is None:
            self._transport.close()
            return
        self._sent = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, separator, body = self._buffer.partition(b"\r\n\r\n")
        if not separator:
            return
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        if len(body) < length:
            return
        self._load.finished(time.perf_counter() - self._sent, head, body)
        self._buffer = b""
        self._next()

    def connection_lost(self, _: Exception | None) -> None:
        self._load.gone()


class Load:
    """A block of load: requests of one kind for some seconds."""

    def __init__(self, port: int, path: str, bodies: list[bytes], seconds: float) -> None:
        head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\ncontent-length: "
        self._requests = [f"{head}{len(body)}\r\n\r\n".encode() + body for body in bodies]
        self._port, self._seconds = port, seconds
        self._sent = 0
        self.times: list[float] = []
        self.ids: list[str] = []

    async def run(self, connections: int) -> float:
        """Run the block; return the number of responses a second."""
        loop = asyncio.get_running_loop()
        self._open, self._done = connections, loop.create_future()
        started = time.perf_counter()
        self._end = started + self._seconds
        for _ in range(connections):
            await loop.create_connection(lambda: Connection(self), "127.0.0.1", self._port)
        await self._done
        return len(self.times) / (time.perf_counter() - started)

    def next_request(self) -> bytes | None:
        if self._sent and time.perf_counter() >= self._end:
            return None
        self._sent += 1
        return self._requests[self._sent % len(self._requests)]

    def finished(self, seconds: float, head: bytes, body: bytes) -> None:
        assert head.startswith((b"HTTP/1.1 201", b"HTTP/1.1 200")), (head, body)
        self.times.append(seconds)
        self.ids.append(body.partition(b'"id":"')[2].partition(b'"')[0].decode())

    def gone(self) -> None:
        self._open -= 1
        if not self._open:
            self._done.set_result(None)


def decisions(generator: random.Random, count: int, columns: int) -> list[bytes]:
    rows = [{f"x{i}": generator.random() for i in range(columns)} for _ in range(count)]
    return [json.dumps({"context": row}).encode() for row in rows]


class Bulk(Load):
    """Rewards of many decisions, a thousand in a request, each sent once."""

    def __init__(self, port: int, ids: list[str], generator: random.Random) -> None:
        pairs = [{"id": id, "reward": float(generator.random() < 0.5)} for id in ids]
        bodies = [json.dumps({"rewards": pairs[i : i + 1000]}).encode() for i in range(0, len(pairs), 1000)]
        super().__init__(port, "/v1/loops/load/rewards", bodies, float("inf"))
        self.learned = 0

    def next_request(self) -> bytes | None:
        self._sent += 1
        return self._requests[self._sent - 1] if self._sent <= len(self._requests) else None

    def finished(self, seconds: float, head: bytes, body: bytes) -> None:
        super().finished(seconds, head, body)
        counts = json.loads(body)["counts"]
        assert set(counts) == {"learned"}, counts
        self.learned += counts["learned"]


def send_rewards(port: int, ids: list[str], generator: random.Random) -> float:
    """Send rewards in bulk; return how many were taken and learned a second."""
    bulk = Bulk(port, ids, generator)
    started = time.perf_counter()
    asyncio.run(bulk.run(BULK_CONNECTIONS))
    assert bulk.learned == len(ids)
    # rewards are acknowledged once they are stored; the next request waits until they are learned
    asyncio.run(Load(port, "/v1/loops/load/rewards", [b'{"rewards": []}'], 0.0).run(1))
    return len(ids) / (time.perf_counter() - started)


def processes_of(pid: int) -> list[int]:
    """A process and those that it started."""
    children = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return [pid, *(int(one) for found in children for one in found)]


def memory_of(pid: int) -> float:
    """Resident megabytes of a process and those that it started."""
    texts = [Path(f"/proc/{one}/status").read_text() for one in processes_of(pid)]
    return sum(float(text.partition("VmRSS:")[2].split()[0]) / 1024 for text in texts)


def processor_seconds(pid: int) -> float:
    """Seconds that a process and those that it started have spent computing, whatever else the machine does."""
    parts = [Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split() for one in processes_of(pid)]
    return sum(int(one[11]) + int(one[12]) for one in parts) / os.sysconf("SC_CLK_TCK")


def measure(arguments: argparse.Namespace) -> list[dict[str, object]]:
    generator = random.Random(0)
    folder = tempfile.TemporaryDirectory(prefix="kernel-bandits-")
    database = arguments.database or str(Path(folder.name, "events.db"))
    command = [sys.executable, __file__, *sys.argv[1:], "--serve", str(arguments.port), "--database", database]
    server = subprocess.Popen(command)
    rows: list[dict[str, object]] = []
    try:
        _wait(arguments.port)
        bodies = decisions(generator, 2000, arguments.columns)
        warm = Load(arguments.port, "/v1/loops/load/decisions", bodies, 3.0)
        asyncio.run(warm.run(arguments.connections))
        send_rewards(arguments.port, warm.ids, generator)
        total, block = len(warm.ids), 0
        while block < arguments.blocks or total < arguments.events:
            empty = Load(arguments.port, "/v1/empty", [b"{}"], arguments.empty_seconds or arguments.seconds)
            marks = [processor_seconds(server.pid)]
            floor = asyncio.run(empty.run(arguments.connections))
            marks.append(processor_seconds(server.pid))
            load = Load(arguments.port, "/v1/loops/load/decisions", bodies, arguments.seconds)
            rate = asyncio.run(load.run(arguments.connections))
            marks.append(processor_seconds(server.pid))
            rewards = send_rewards(arguments.port, load.ids, generator)
            costs = [(marks[1] - marks[0]) / len(empty.times), (marks[2] - marks[1]) / len(load.times)]
            p50, p99, p999 = (float(1000 * np.quantile(load.times, share)) for share in (0.5, 0.99, 0.999))
            total, block = total + len(load.ids), block + 1
            row: dict[str, object] = {
                "decisions": total,
                "decisions/s": round(rate),
                "empty/s": round(floor),
                "ratio": rate / floor,
                "CPU µs": round(1e6 * costs[1]),
                "CPU ratio": costs[0] / costs[1],
                "p50 ms": p50,
                "p99 ms": p99,
                "p99.9 ms": p999,
                "rewards/s": round(rewards),
                "rewards/decisions": rewards / rate,
                "MB": round(memory_of(server.pid)),
            }
            rows.append(row)
            print(row, file=sys.stderr, flush=True)
    finally:
        server.terminate()
        server.wait()
        folder.cleanup()
    return rows


def _wait(port: int) -> None:
    for _ in range(600):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz") as response:
                if response.status == 200:
                    return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the server did not start")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each block")
    parser.add_argument("--empty-seconds", type=float, default=0.0, help="of each block of empty requests, if others")
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--events", type=int, default=0, help="go on until this number of decisions were made")
    for name, count in {"columns": 20, "arms": 10, "anchors": 200, "connections": 64}.items():
        parser.add_argument(f"--{name}", type=int, default=count)
    parser.add_argument("--database", default="")
    parser.add_argument("--port", type=int, default=8191)
    parser.add_argument("--ignore-pending", action="store_true", help="anticipates = false")
    parser.add_argument("--serve", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        run_server(arguments)
    else:
        print(markdown(measure(arguments)))


if __name__ == "__main__":
    main()
