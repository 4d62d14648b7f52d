"""The thread that owns a loop: it decides, commits a batch of events, and learns them."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from kernel_bandits.errors import KernelBanditsError
from kernel_bandits_server.choosing import draft_all
from kernel_bandits_server.events import whole_blocks
from kernel_bandits_server.planning import Change, Command, Decide, Plan, Query, RefusedError, SetShare
from kernel_bandits_server.replica import Replica
from kernel_bandits_server.settings import LoopSettings, Service, Settings
from kernel_bandits_server.store import READ_AT_ONCE, Leadership, Store, StoreError

# The most commands that share one transaction.
BATCH = 256
# Seconds between two looks at whether a challenger has earned another share.
PROMOTION = 10.0
# Seconds before a model that failed is built again.
PAUSE = 1.0
# A snapshot holds every pending decision, so it is worth writing after this many events for each of them.
EVENTS_PER_PENDING = 10
# Views that are remembered.
MOST_VIEWS = 1_000
_log = logging.getLogger("kernel_bandits_server")


class Clock:
    """Seconds since 1970 that do not jump when the system's clock does while the process runs."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def __call__(self) -> float:
        """Return the time."""
        return time.monotonic() + self._offset


class Worker:
    """Carries out the commands of one loop, in batches, in a thread of its own.

    Args:
        settings: of the loop.
        service: of the service.
        store: the event log.
        leader: the lock of the process that writes snapshots and settles silent decisions.
        deliver: takes the commands that are done, in the worker's thread.
    """

    def __init__(
        self,
        settings: LoopSettings,
        service: Service,
        store: Store,
        leader: Leadership,
        deliver: Callable[[Sequence[Command]], None],
    ) -> None:
        self.settings, self.failure, self.clock = settings, "starting: the log is being replayed", Clock()
        self._service, self._store, self._leader, self._deliver = service, store, leader, deliver
        self._queue: queue.SimpleQueue[Command | None] = queue.SimpleQueue()
        self._replica: Replica | None = None
        self._snapshot_number = 0
        self._looked = self._promoted = 0.0
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"loop {settings.name}", daemon=True)

    @property
    def ready(self) -> bool:
        """Whether the state is that of the log."""
        return self._replica is not None

    @property
    def applied(self) -> int:
        """The number of the last event that is taken into account."""
        replica = self._replica
        return 0 if replica is None else replica.applied

    def gauges(self) -> dict[str, float]:
        """Return numbers that may be read from any thread."""
        replica, waiting = self._replica, self._queue.qsize()
        numbers = {
            "ready": replica is not None,
            "waiting": waiting,
            "events": self.applied,
            "leads": self._leader.leads,
        }
        if replica is not None:
            numbers["pending"] = len(replica.open)
            numbers["dictionary_size"] = replica.policy.dictionary_size
            numbers["matured"] = replica.tally.counts["decisions"] - len(replica.line)
        return {name: float(number) for name, number in numbers.items()}

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, command: Command) -> None:
        """Hand a command over; it is delivered when it is done."""
        if self._stopping:
            raise RefusedError(503, "stopping", "the service is stopping; repeat the request elsewhere or later.")
        if self._queue.qsize() >= self._service.limits.waiting:
            raise RefusedError(503, "busy", "too many requests wait for this loop; repeat the request later.")
        self._queue.put(command)

    def stop(self) -> None:
        """Carry out what was handed over, write a snapshot, and end the thread."""
        self._stopping = True
        self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        stopping = False
        while not stopping:
            commands, stopping = self._next_commands()
            try:
                self._carry_out(commands)
            except StoreError as reason:
                self._refuse(commands, RefusedError(503, "database", f"{reason} Repeat the request later."))
            except Exception as reason:
                _log.exception("a batch failed", extra={"loop": self.settings.name})
                # the state may be between two events: take it from the log again
                self._replica = None
                self.failure = f"the model failed ({type(reason).__name__}) and is being rebuilt from the log"
                message = "the model failed; nothing was lost, repeat the request."
                self._refuse(commands, RefusedError(500, "internal", message))
                time.sleep(PAUSE)
        self._write_snapshot(fewest=1)

    def _next_commands(self) -> tuple[list[Command], bool]:
        """Return the commands that wait, the first of them after at most the lag, and whether to stop."""
        commands: list[Command] = []
        with suppress(queue.Empty):
            command = self._queue.get(timeout=self._service.lag)
            while command is not None:
                commands.append(command)
                if len(commands) >= BATCH:
                    return commands, False
                command = self._queue.get_nowait()
            return commands, True
        return commands, False

    def _hand_back(self, commands: list[Command]) -> None:
        """Deliver commands that are done, and forget them."""
        done = commands[:]
        commands.clear()
        if done:
            self._deliver(done)

    def _refuse(self, commands: list[Command], error: Exception) -> None:
        for command in commands:
            if command.result is None and command.error is None:
                command.error = error
        self._hand_back(commands)

    def _carry_out(self, commands: list[Command]) -> None:
        if self._replica is None:
            self._replica = self._recovered()
        now = time.monotonic()
        due = now - self._looked >= self._service.lag
        if due:
            self._looked = now
            self._replica = self._caught_up(self._replica)
        replica, leads = self._replica, due and self._leader.hold()
        for command in commands:
            if isinstance(command, Query):
                try:
                    command.result = command.function(replica)
                except Exception as reason:  # it has changed nothing
                    command.error = reason
        draft_all([command for command in commands if isinstance(command, Decide)], replica)
        changes = [one for one in commands if isinstance(one, Change) and one.error is None]
        challenger = self.settings.challenger
        if leads and challenger is not None and challenger.automatic and now - self._promoted >= PROMOTION:
            self._promoted = now
            changes.append(SetShare())
        if changes or (leads and next(replica.silent(self.clock()), None) is not None):
            events = self._append(changes, replica, leads)
            # what is committed counts whatever happens; whoever calls next finds it learned
            self._hand_back(commands)
            replica.apply(events)
        self._hand_back(commands)
        if leads:
            self._write_snapshot(max(self._service.snapshot_events, EVENTS_PER_PENDING * len(replica.open)))

    def _append(self, changes: Sequence[Change], replica: Replica, leads: bool) -> Sequence[Any]:
        """Append what becomes of commands to the log, in one transaction, and return it."""
        try:
            with self._store.append(self.settings.name) as log:
                # what others appended meanwhile comes first
                while events := whole_blocks(log.read(replica.applied), READ_AT_ONCE):
                    replica.apply(events)
                plan = Plan(replica, log, self.clock(), self._service.limits.pending)
                plan.add_all(changes)
                if leads:
                    plan.add_silent()
                log.append(plan.events)
        except BaseException:
            # what was planned did not happen, or nobody knows: the log is read before the next batch
            for command in changes:
                command.result = command.error = None
            raise
        return plan.events

    def _recovered(self) -> Replica:
        """Return the state of the latest snapshot and the events after it."""
        started, name = time.monotonic(), self.settings.name
        snapshot, replica = self._store.latest_snapshot(name, self.settings.fingerprint), None
        if snapshot is not None:
            try:
                replica = Replica(self.settings, snapshot)
            except (KernelBanditsError, ValueError) as reason:
                _log.warning("snapshot refused: %s", reason, extra={"loop": name})
        replica = replica or Replica(self.settings)
        self._snapshot_number = replica.applied
        for events in self._store.read_blocks(name, replica.applied):
            replica.apply(events)
        self.failure = ""
        facts = {"loop": name, "snapshot": self._snapshot_number, "events": replica.applied}
        _log.info("recovered", extra={**facts, "seconds": round(time.monotonic() - started, 3)})
        unlearned = replica.tally.counts["unlearned"]
        if unlearned:
            _log.warning(
                "%d decisions of the log were not learned; they may not fit the loop's columns. Restore the columns "
                "they were made with, or use another loop or database for the new ones.",
                unlearned,
                extra={"loop": name, "unlearned": unlearned},
            )
        return replica

    def _caught_up(self, replica: Replica) -> Replica:
        """Return the state with what other processes appended."""
        while events := self._store.read(self.settings.name, replica.applied):
            newer = None
            if len(events) == READ_AT_ONCE:
                newer = self._store.latest_snapshot(self.settings.name, self.settings.fingerprint)
            if newer is not None and newer.number > events[-1].number:
                # far behind: the same state is to be had without learning every event
                replica = Replica(self.settings, newer)
            else:
                replica.apply(whole_blocks(events, READ_AT_ONCE))
        return replica

    def _write_snapshot(self, fewest: int) -> None:
        """Write a snapshot if there are so many events since the last, or since one that failed: each takes long."""
        replica = self._replica
        if replica is None or replica.applied - self._snapshot_number < fewest:
            return
        self._snapshot_number = replica.applied
        try:
            self._store.write_snapshot(self.settings.name, replica.snapshot())
        except KernelBanditsError as reason:
            _log.warning("no snapshot: %s", reason, extra={"loop": self.settings.name})


def replay(settings: LoopSettings, store: Store) -> Replica:
    """Return the state after all events of a log, without any snapshot."""
    replica = Replica(settings)
    for events in store.read_blocks(settings.name):
        replica.apply(events)
    return replica


class Runtime:
    """The loops of a process: a worker for each, one database, one lock for the leader.

    Args:
        settings: of the service.
        address: of the database.
    """

    def __init__(self, settings: Settings, address: str) -> None:
        self.settings, self.store = settings, Store(address)
        self.leader = self.store.leadership()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.workers = {
            name: Worker(loop, settings.service, self.store, self.leader, self._deliver)
            for name, loop in settings.loops.items()
        }
        self._views: dict[tuple[str, str], tuple[float, int, Any]] = {}

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
            raise RefusedError(404, "unknown_loop", "there is no loop of this name.")
        return worker

    async def carry_out(self, name: str, command: Command) -> Any:
        """Return the result of a command, or raise its error."""
        worker, future = self.worker(name), asyncio.get_running_loop().create_future()
        command.done = lambda: None if future.done() else future.set_result(None)
        worker.submit(command)
        await future
        if command.error is not None:
            raise command.error
        return command.result

    async def view(self, name: str, what: str, function: Callable[[Replica], Any], seconds: float = 1.0) -> Any:
        """Return what a function makes of the state of a loop, at most some seconds old while the loop changes.

        If it returns a function, that one is called outside the loop's thread: what takes long holds no decision up.
        """
        worker, now = self.worker(name), time.monotonic()
        stored = self._views.get((name, what))
        if stored is not None and (stored[1] == worker.applied or now - stored[0] < seconds):
            return stored[2]
        number, value = await self.carry_out(name, Query(lambda replica: (replica.applied, function(replica))))
        if callable(value):
            value = await asyncio.to_thread(value)
        if len(self._views) >= MOST_VIEWS:
            self._views.clear()
        self._views[(name, what)] = (now, number, value)
        return value

    async def check(self) -> None:
        """Raise an error if the database takes no events."""
        await asyncio.to_thread(self.store.check)

    def _deliver(self, commands: Sequence[Command]) -> None:
        assert self._loop is not None
        # a service that is told to stop may have closed its loop
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(_finish, commands)


def _finish(commands: Sequence[Command]) -> None:
    for command in commands:
        if command.done is not None:
            command.done()
