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
from kernel_bandits_server.commands import Change, Command, Decide, Query, RefusedError
from kernel_bandits_server.events import whole_blocks
from kernel_bandits_server.planning import Plan, draft_all
from kernel_bandits_server.replica import Replica
from kernel_bandits_server.settings import LoopSettings, Service, Settings
from kernel_bandits_server.store import READ_AT_ONCE, Store, StoreError, Transaction

# The most commands that share one transaction.
BATCH = 256
# Where fewer wait, more are waited for: seconds between two looks, and the most looks. A batch costs by itself as much
# as twenty decisions.
ENOUGH, GATHERING, MOST_LOOKS = 24, 0.0005, 4
# Seconds between two looks at whether a challenger has earned another share.
PROMOTION = 10.0
# Seconds before a model that failed is built again.
PAUSE = 1.0
# A snapshot holds every pending decision, so it is worth writing after this many events for each of them.
EVENTS_PER_PENDING = 10
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
        leads: returns whether this process writes snapshots and settles silent decisions.
        deliver: takes the commands that are done, in the worker's thread.
    """

    def __init__(
        self,
        settings: LoopSettings,
        service: Service,
        store: Store,
        leads: Callable[[], bool],
        deliver: Callable[[Sequence[Command]], None],
    ) -> None:
        self.settings = settings
        self.failure = "starting: the log is being replayed"
        self._service = service
        self._store = store
        self._leads = leads
        self._deliver = deliver
        self.clock = Clock()
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
    def waiting(self) -> int:
        """The number of commands in the queue."""
        return self._queue.qsize()

    @property
    def applied(self) -> int:
        """The number of the last event that is taken into account."""
        replica = self._replica
        return 0 if replica is None else replica.applied

    def gauges(self) -> dict[str, float]:
        """Return numbers that may be read from any thread."""
        replica = self._replica
        numbers = {"ready": float(replica is not None), "waiting": float(self.waiting), "events": float(self.applied)}
        if replica is not None:
            numbers["pending"] = float(len(replica.open))
            numbers["dictionary_size"] = float(replica.policy.dictionary_size)
            numbers["matured"] = float(replica.tally.counts["matured"])
        return numbers

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, command: Command) -> None:
        """Hand a command over; it is delivered when it is done."""
        self.require_room()
        self._queue.put(command)

    def require_room(self) -> None:
        """Refuse what would not be taken."""
        if self._stopping:
            raise RefusedError(503, "stopping", "the service is stopping; repeat the request elsewhere or later.")
        if self._queue.qsize() >= self._service.limits.waiting:
            raise RefusedError(503, "busy", "too many requests wait for this loop; repeat the request later.")

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
                self._fail(commands, RefusedError(503, "database", f"{reason} Repeat the request later."))
            except Exception as reason:
                _log.exception("a batch failed", extra={"loop": self.settings.name})
                # the state may be between two events: take it from the log again
                self._replica = None
                self.failure = f"the model failed ({type(reason).__name__}) and is being rebuilt from the log"
                message = "the model failed; nothing was lost, repeat the request."
                self._fail(commands, RefusedError(500, "internal", message))
                time.sleep(PAUSE)
            self._hand_back(commands)
        self._write_snapshot(force=True)

    def _next_commands(self) -> tuple[list[Command], bool]:
        """Return commands that wait, after at most the lag, and whether to stop.

        If a few wait, more are likely to arrive soon: the worker looks again as long as more arrive, a few times at
        most.
        """
        commands: list[Command] = []
        stopping, known = self._take_waiting(commands, self._service.lag), 1
        for _ in range(MOST_LOOKS):
            if stopping or not known < len(commands) < ENOUGH:
                break
            known = len(commands)
            time.sleep(GATHERING)
            stopping = self._take_waiting(commands, 0.0)
        return commands, stopping

    def _take_waiting(self, commands: list[Command], timeout: float) -> bool:
        """Add commands that wait, the first of them after at most a timeout; return whether to stop."""
        try:
            command = self._queue.get(timeout=timeout)
            while command is not None:
                commands.append(command)
                if len(commands) >= BATCH:
                    return False
                command = self._queue.get_nowait()
            return True
        except queue.Empty:
            return False

    def _hand_back(self, commands: list[Command]) -> None:
        """Deliver commands that are done, and forget them."""
        done = commands[:]
        commands.clear()
        if done:
            self._deliver(done)

    @staticmethod
    def _fail(commands: Sequence[Command], error: Exception) -> None:
        for command in commands:
            if command.result is None and command.error is None:
                command.error = error

    def _carry_out(self, commands: list[Command]) -> None:
        if self._replica is None:
            self._recover()
        replica = self._replica
        assert replica is not None
        now = time.monotonic()
        due = now - self._looked >= self._service.lag
        if due:
            self._looked = now
            replica = self._catch_up(replica)
        for command in commands:
            if isinstance(command, Query):
                self._compute(command, replica)
        draft_all([command for command in commands if isinstance(command, Decide)], replica)
        changing = [one for one in commands if not isinstance(one, Query) and one.error is None]
        leads = due and self._leads()
        if leads and now - self._promoted >= PROMOTION:
            self._promoted = now
            changing += self._promotion(replica)
        if changing or (leads and next(replica.silent(self.clock()), None) is not None):
            try:
                plan, transaction = self._plan(changing, replica, leads)
                with transaction.rolled_back():
                    transaction.log.append_prepared()
                transaction.commit()
            except BaseException:
                # what was planned did not happen, or nobody knows: the log is read before the next batch
                for command in changing:
                    command.result = command.error = None
                raise
            # what is committed counts whatever happens; whoever calls next finds it learned
            self._hand_back(commands)
            replica.apply(plan.events)
        else:
            self._hand_back(commands)
        if leads:
            self._write_snapshot()

    @staticmethod
    def _promotion(replica: Replica) -> list[Command]:
        """Return the step that a challenger has earned, up or down, where it is promoted by what it earns."""
        challenger = replica.settings.challenger
        if challenger is None or not challenger.automatic:
            return []
        trial = replica.tally.view().trial
        share = replica.share if trial is None else trial.next_share(replica.share)
        return [] if share == replica.share else [Change({"share": share, "by": "evidence"})]

    @staticmethod
    def _compute(command: Query, replica: Replica) -> None:
        try:
            command.result = command.function(replica)
        except KernelBanditsError as reason:
            command.error = reason

    def _plan(self, commands: list[Command], replica: Replica, leads: bool) -> tuple[Plan, Transaction]:
        """Append the events of commands in a transaction, and return both."""
        transaction = self._store.begin(self.settings.name)
        with transaction.rolled_back():
            log = transaction.log
            # what others appended meanwhile comes first
            while events := whole_blocks(log.read(replica.applied), READ_AT_ONCE):
                replica.apply(events)
            plan = Plan(replica, log, self.clock(), self._service.limits.pending)
            plan.add_all(commands)
            if leads:
                plan.add_silent()
            log.prepare(plan.events)
        return plan, transaction

    def _recover(self) -> None:
        """Take the state from the latest snapshot and the events after it."""
        started = time.monotonic()
        snapshot = self._store.latest_snapshot(self.settings.name, self.settings.fingerprint)
        replica = None
        if snapshot is not None:
            try:
                replica = Replica.restore(self.settings, snapshot)
            except KernelBanditsError as reason:
                _log.warning("snapshot refused: %s", reason, extra={"loop": self.settings.name})
        if replica is None:
            replica = Replica(self.settings)
        start = replica.applied
        for events in self._store.read_blocks(self.settings.name, replica.applied):
            replica.apply(events)
        self._replica, self._snapshot_number, self.failure = replica, start, ""
        _log.info(
            "recovered",
            extra={
                "loop": self.settings.name,
                "snapshot": start,
                "events": replica.applied,
                "seconds": round(time.monotonic() - started, 3),
            },
        )
        _warn_of_unlearned(replica)

    def _catch_up(self, replica: Replica) -> Replica:
        """Return the state with what other processes appended."""
        while events := self._store.read(self.settings.name, replica.applied):
            newer = None
            if len(events) == READ_AT_ONCE:
                newer = self._store.latest_snapshot(self.settings.name, self.settings.fingerprint)
            if newer is not None and newer.number > events[-1].number:
                # far behind: the same state is to be had without learning every event
                replica = self._replica = Replica.restore(self.settings, newer)
            else:
                replica.apply(whole_blocks(events, READ_AT_ONCE))
        return replica

    def _write_snapshot(self, force: bool = False) -> None:
        replica = self._replica
        if replica is None or replica.applied == self._snapshot_number:
            return
        fewest = max(self._service.snapshot_events, EVENTS_PER_PENDING * len(replica.open))
        if not force and replica.applied - self._snapshot_number < fewest:
            return
        try:
            self._store.write_snapshot(self.settings.name, replica.snapshot())
        except KernelBanditsError as reason:
            _log.warning("no snapshot: %s", reason, extra={"loop": self.settings.name})
            return
        self._snapshot_number = replica.applied


def _warn_of_unlearned(replica: Replica) -> None:
    """Say that a part of the log is not in the model: the loop is ready all the same."""
    unlearned = replica.tally.counts["unlearned"]
    if unlearned:
        _log.warning(
            "%d decisions of the log were not learned; they may not fit the loop's columns. Restore the columns they "
            "were made with, or use another loop or database for the new ones.",
            unlearned,
            extra={"loop": replica.settings.name, "unlearned": unlearned},
        )


def replay(settings: LoopSettings, store: Store) -> Replica:
    """Return the state after all events of a log, without any snapshot."""
    replica = Replica(settings)
    for events in store.read_blocks(settings.name):
        replica.apply(events)
    return replica


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
    """The loops of a process: a worker for each, one database, one lock for the leader.

    Args:
        settings: of the service.
        address: of the database.
    """

    def __init__(self, settings: Settings, address: str) -> None:
        self.settings = settings
        self.store = Store(address)
        self.leader = Leader(self.store, settings.service.lag)
        self._loop: asyncio.AbstractEventLoop | None = None
        self.workers = {
            name: Worker(loop, settings.service, self.store, self.leader, self._deliver)
            for name, loop in settings.loops.items()
        }
        self._computed: dict[tuple[str, str], tuple[float, int, Any]] = {}
        # what takes long to read, and when it was
        self.known: dict[tuple[str, str], tuple[float, Any]] = {}
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

    async def compute(self, name: str, what: str, function: Callable[[Replica], Any], seconds: float) -> Any:
        """Return what a function makes of the state of a loop, at most some seconds old while the loop changes."""
        worker, now = self.worker(name), time.monotonic()
        stored = self._computed.get((name, what))
        if stored is not None and (stored[1] == worker.applied or now - stored[0] < seconds):
            return stored[2]
        number, value = await self.carry_out(name, Query(lambda replica: (replica.applied, function(replica))))
        if len(self._computed) > 1_000:
            self._computed.clear()
        self._computed[(name, what)] = (now, number, value)
        return value

    async def check_writing(self) -> None:
        """Raise an error if the database takes no events; those who ask at the same time share one look."""
        if self._probe is None or self._probe.done():
            self._probe = asyncio.ensure_future(asyncio.to_thread(self.store.check_writing))
        await asyncio.shield(self._probe)

    def _deliver(self, commands: Sequence[Command]) -> None:
        assert self._loop is not None
        # a service that is told to stop may have closed its loop
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(_finish, commands)


def _finish(commands: Sequence[Command]) -> None:
    for command in commands:
        if command.done is not None:
            command.done()
