"""The loops of a process: one worker for each, one database, one lock for the leader."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernel_bandits_server.commands import Command, Query, unknown_loop
from kernel_bandits_server.replica import Replica
from kernel_bandits_server.settings import ServiceSettings
from kernel_bandits_server.store import Store
from kernel_bandits_server.worker import Worker


class Leader:
    """Whether this process leads; asked of the database at most once a lag, by whichever worker comes first.

    Args:
        store: its lock is held.
        lag: seconds.
    """

    def __init__(self, store: Store, lag: float) -> None:
        self._lock = store.leadership()
        self._lag = lag
        self._guard = threading.Lock()
        self._asked = float("-inf")
        self.leads = False

    def __call__(self) -> bool:
        """Return whether this process leads."""
        with self._guard:
            now = time.monotonic()
            if now - self._asked >= self._lag:
                self._asked, self.leads = now, self._lock.hold()
            return self.leads

    def release(self) -> None:
        """Let another process lead."""
        with self._guard:
            self._lock.release()
            self.leads = False


class Runtime:
    """The loops of a service.

    Args:
        settings: of the service.
        address: of the database.
    """

    def __init__(self, settings: ServiceSettings, address: str) -> None:
        self.settings = settings
        self.store = Store(address)
        self.leader = Leader(self.store, settings.lag)
        self._loop: asyncio.AbstractEventLoop | None = None
        self.workers = {
            name: Worker(loop, settings, self.store, self.leader, self._deliver)
            for name, loop in settings.loops.items()
        }
        # takes the commands of requests that wait on the channel
        self.answer: Callable[[Sequence[Command]], None] = lambda _: None
        self._cached: dict[tuple[str, str], tuple[float, int, Any]] = {}
        self._probe: asyncio.Future[None] | None = None

    def start(self) -> None:
        """Start every worker; to be called where an event loop runs."""
        self._loop = asyncio.get_running_loop()
        for worker in self.workers.values():
            worker.start()

    def stop(self) -> None:
        """Finish what was handed over, and let go of the database."""
        for worker in self.workers.values():
            worker.stop()
        self.leader.release()
        self.store.close()

    def worker(self, name: str) -> Worker:
        """Return the worker of a loop."""
        worker = self.workers.get(name)
        if worker is None:
            raise unknown_loop()
        return worker

    async def carry_out(self, name: str, command: Command) -> Any:
        """Return the result of a command, or raise its error."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        command.done = lambda: None if future.done() else future.set_result(None)
        self.worker(name).submit(command)
        await future
        if command.error is not None:
            raise command.error
        return command.result

    async def compute(self, name: str, what: str, function: Callable[[Replica], Any], seconds: float) -> Any:
        """Return what a function makes of the state of a loop, at most some seconds old while the loop changes."""
        worker = self.worker(name)
        stored = self._cached.get((name, what))
        now = time.monotonic()
        if stored is not None and (stored[1] == worker.applied or now - stored[0] < seconds):
            return stored[2]
        number, value = await self.carry_out(name, Query(lambda replica: (replica.applied, function(replica))))
        if len(self._cached) > 1_000:
            self._cached.clear()
        self._cached[(name, what)] = (now, number, value)
        return value

    async def check_writing(self) -> None:
        """Raise an error if the database takes no events; those who ask at the same time share one look."""
        if self._probe is None or self._probe.done():
            self._probe = asyncio.ensure_future(asyncio.to_thread(self.store.check_writing))
        await asyncio.shield(self._probe)

    def state(self) -> Mapping[str, str]:
        """Return what keeps each loop from being ready; empty if nothing does."""
        return {name: worker.failure for name, worker in self.workers.items() if not worker.ready}

    def _deliver(self, commands: Sequence[Command]) -> None:
        asked = [command for command in commands if command.number]
        if asked:
            self.answer(asked)
        if len(asked) < len(commands):
            assert self._loop is not None
            self._loop.call_soon_threadsafe(_finish, [one for one in commands if not one.number])


def _finish(commands: Sequence[Command]) -> None:
    for command in commands:
        if command.done is not None:
            command.done()
