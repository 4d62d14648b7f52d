"""The event log, the snapshots and the lock of the leader, in SQLite or PostgreSQL through SQLAlchemy.

SQLite's write lock or an advisory lock of PostgreSQL serialises appends, so that numbers of events have no gaps.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from kernel_bandits.errors import InputError, KernelBanditsError, needs
from kernel_bandits_server.events import Event, decode, encode, whole_blocks

with needs("SQLAlchemy", "kernel-bandits-server"):
    import sqlalchemy as sql
    from sqlalchemy import event as hooks
    from sqlalchemy.engine import URL, Connection, Engine, make_url
    from sqlalchemy.exc import ArgumentError, SQLAlchemyError
    from sqlalchemy.exc import DBAPIError as DatabaseError

_tables = sql.MetaData()
EVENTS = sql.Table(
    "events",
    _tables,
    sql.Column("loop", sql.String(64), primary_key=True),
    sql.Column("number", sql.BigInteger, primary_key=True, autoincrement=False),
    sql.Column("kind", sql.String(16), nullable=False),
    sql.Column("decision", sql.String(256), nullable=False),
    sql.Column("time", sql.Double, nullable=False),
    sql.Column("body", sql.Text, nullable=False),
    # whatever else happens, a decision is made once and settled once
    sql.Index("events_once", "loop", "decision", "kind", unique=True),
)
SNAPSHOTS = sql.Table(
    "snapshots",
    _tables,
    sql.Column("loop", sql.String(64), primary_key=True),
    sql.Column("number", sql.BigInteger, primary_key=True, autoincrement=False),
    sql.Column("fingerprint", sql.String(64), nullable=False),
    sql.Column("state", sql.Text, nullable=False),
    sql.Column("policy", sql.LargeBinary, nullable=False),
)
KEPT_SNAPSHOTS = 2
BUSY_SECONDS = 5.0
READ_AT_ONCE = 5_000
# Ids that one statement looks for.
IDS_AT_ONCE = 500


class StoreError(KernelBanditsError, RuntimeError):
    """The database did not take or return something; nothing was acknowledged, and the call may be repeated."""


class Snapshot(NamedTuple):
    """The state of a loop after an event."""

    number: int  # of the last event in it
    fingerprint: str  # of the loop's settings
    state: str  # what the service keeps beside the policies, as JSON
    policy: bytes  # the files that ``policy.save`` writes, one after the other


class Store:
    """A database of events and snapshots.

    Args:
        address: of the database: ``sqlite:///file.db``, ``postgresql://user@host/name``, or the path of a SQLite file.
    """

    def __init__(self, address: str) -> None:
        url = _as_url(address)
        self.is_sqlite = url.get_backend_name() == "sqlite"
        options: dict[str, Any] = {"connect_args": {"timeout": BUSY_SECONDS}}
        if not self.is_sqlite:
            options = {"pool_pre_ping": True, "connect_args": {"connect_timeout": 5}}
        self._engine = sql.create_engine(url, pool_size=5, max_overflow=20, **options)
        if self.is_sqlite:
            hooks.listen(self._engine, "connect", _configure_sqlite)
            hooks.listen(self._engine, "begin", _begin_sqlite)
        self._reading = self._engine.execution_options(isolation_level="AUTOCOMMIT")
        # two processes that create the same table at once would get in each other's way
        with self._alone("tables") as connection:
            _tables.create_all(connection)

    @contextmanager
    def _alone(self, name: str) -> Iterator[Connection]:
        """Open a transaction that no other of the same name runs beside; it commits if all goes well."""
        with _plain_errors(), self._engine.begin() as connection:
            if not self.is_sqlite:
                connection.execute(sql.select(sql.func.pg_advisory_xact_lock(_lock_key(name))))
            yield connection

    @contextmanager
    def append(self, loop: str) -> Iterator[Log]:
        """Open a transaction that alone appends to a loop; it commits when the context ends without an error."""
        with self._alone(loop) as connection:
            yield Log(connection, loop)

    @contextmanager
    def _log(self, loop: str) -> Iterator[Log]:
        with _plain_errors(), self._reading.connect() as connection:
            yield Log(connection, loop)

    def read(self, loop: str, after: int = 0, limit: int = READ_AT_ONCE) -> list[Event]:
        """Return the events of a loop after a number, in order, at most ``limit``."""
        with self._log(loop) as log:
            return log.read(after, limit)

    def read_blocks(self, loop: str, after: int = 0) -> Iterator[Sequence[Event]]:
        """Yield the events of a loop after a number, in order, some whole blocks at a time."""
        while events := whole_blocks(self.read(loop, after, READ_AT_ONCE), READ_AT_ONCE):
            yield events
            after = events[-1].number

    def find(self, loop: str, decisions: Sequence[str]) -> dict[str, dict[str, Event]]:
        """Return the events of decisions, by decision and kind."""
        with self._log(loop) as log:
            return log.find(decisions)

    def latest_snapshot(self, loop: str, fingerprint: str) -> Snapshot | None:
        """Return the latest snapshot of a loop with these settings."""
        query = (
            sql.select(SNAPSHOTS.c.number, SNAPSHOTS.c.fingerprint, SNAPSHOTS.c.state, SNAPSHOTS.c.policy)
            .where(SNAPSHOTS.c.loop == loop, SNAPSHOTS.c.fingerprint == fingerprint)
            .order_by(SNAPSHOTS.c.number.desc())
            .limit(1)
        )
        with _plain_errors(), self._reading.connect() as connection:
            row = connection.execute(query).first()
        return None if row is None else Snapshot._make(row)

    def write_snapshot(self, loop: str, snapshot: Snapshot) -> None:
        """Keep a snapshot in place of the oldest ones."""
        number = SNAPSHOTS.c.number
        numbers = sql.select(number).where(SNAPSHOTS.c.loop == loop).order_by(number.desc())
        with self._alone(f"snapshots {loop}") as connection:
            kept = [one for one in connection.scalars(numbers) if one != snapshot.number][: KEPT_SNAPSHOTS - 1]
            connection.execute(sql.delete(SNAPSHOTS).where(SNAPSHOTS.c.loop == loop, number.not_in(kept)))
            connection.execute(sql.insert(SNAPSHOTS).values(loop=loop, **snapshot._asdict()))

    def check(self) -> None:
        """Raise :class:`StoreError` if the database does not respond, or if a SQLite file is locked or read-only."""
        # a transaction of SQLite begins with the write lock
        with _plain_errors(), (self._engine if self.is_sqlite else self._reading).connect() as connection:
            connection.execute(sql.select(sql.literal(1)))

    def leadership(self) -> Leadership:
        """Return the lock that one process at a time holds."""
        if not self.is_sqlite:
            key = _lock_key("leader")
            return Leadership(self._engine, f"SELECT pg_try_advisory_lock({key})", f"SELECT pg_advisory_unlock({key})")
        beside = self._engine.url.set(database=f"{self._engine.url.database}.leader")
        engine = sql.create_engine(beside, connect_args={"timeout": 0.0})
        return Leadership(engine, "BEGIN EXCLUSIVE", "ROLLBACK")

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()


class Log:
    """The events of one loop, within a transaction or outside.

    Args:
        connection: to the database.
        loop: the name of the loop.
    """

    def __init__(self, connection: Connection, loop: str) -> None:
        self._connection, self._loop = connection, loop

    def read(self, after: int, limit: int = READ_AT_ONCE) -> list[Event]:
        """Return the events after a number, in order, at most ``limit``."""
        later = _events.where(EVENTS.c.loop == self._loop, EVENTS.c.number > after)
        return [_event(row) for row in self._connection.execute(later.order_by(EVENTS.c.number).limit(limit))]

    def find(self, decisions: Sequence[str]) -> dict[str, dict[str, Event]]:
        """Return the events of decisions, by decision and kind."""
        found: dict[str, dict[str, Event]] = {}
        for start in range(0, len(decisions), IDS_AT_ONCE):
            ids = list(decisions[start : start + IDS_AT_ONCE])
            for row in self._connection.execute(_events.where(EVENTS.c.loop == self._loop, EVENTS.c.decision.in_(ids))):
                event = _event(row)
                found.setdefault(event.decision, {})[event.kind] = event
        return found

    def append(self, events: Sequence[Event]) -> None:
        """Append events that have their numbers and times."""
        if events:
            rows = [{**event._asdict(), "loop": self._loop, "body": encode(event.body)} for event in events]
            self._connection.execute(sql.insert(EVENTS), rows)


_events = sql.select(*(EVENTS.c[name] for name in Event._fields))


def _event(row: Any) -> Event:
    kind, decision, body, time, number = row
    return Event(kind, decision, decode(body), time, number)


class Leadership:
    """A lock that the database gives to one process and takes back when that process dies.

    In PostgreSQL it is an advisory lock of a session, in SQLite a transaction on an empty database beside the log.

    Args:
        engine: of the database.
        take: the statement that takes the lock.
        give: the statement that gives it back.
    """

    def __init__(self, engine: Engine, take: str, give: str) -> None:
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._take, self._give = take, give
        self._guard = threading.Lock()
        self._connection: Connection | None = None

    @property
    def leads(self) -> bool:
        """Whether this process held the lock when it last looked."""
        return self._connection is not None

    def hold(self) -> bool:
        """Return whether this process holds the lock, and try to get it if not."""
        with self._guard:
            try:
                if self._connection is not None:
                    # with its session the lock is gone
                    self._connection.execute(sql.select(sql.literal(1)))
                    return True
                connection = self._engine.connect()
                try:
                    found = connection.exec_driver_sql(self._take)
                    if not found.returns_rows or found.scalar():
                        self._connection = connection
                finally:
                    if self._connection is None:
                        connection.close()
            except SQLAlchemyError:
                self._let_go()
            return self.leads

    def release(self) -> None:
        """Give the lock back."""
        with self._guard:
            self._let_go()

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(SQLAlchemyError):
                # the database would notice the end of the session a moment later
                connection.exec_driver_sql(self._give)
            connection.invalidate()
            connection.close()


def _lock_key(name: str) -> int:
    """Return a number for PostgreSQL's advisory locks, which are shared by all programs of a database."""
    digest = hashlib.sha256(f"kernel-bandits {name}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def _as_url(address: str) -> URL:
    text = address if "://" in address else f"sqlite:///{Path(address).absolute()}"
    if text.startswith(("postgresql://", "postgres://")):
        text = f"postgresql+psycopg://{text.partition('://')[2]}"
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as reason:
        raise InputError(f"database: expected sqlite:///file.db or postgresql://…, got {address!r}.") from reason
    if url.get_backend_name() not in ("sqlite", "postgresql"):
        raise InputError(f"database: expected SQLite or PostgreSQL, got {url.get_backend_name()!r}.")
    if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
        raise InputError("database: events must outlive the process; name a file.")
    return url


def _configure_sqlite(connection: Any, _: object) -> None:
    # transactions are begun by the hook on "begin"; the driver would begin them too late
    connection.isolation_level = None
    connection.execute("PRAGMA journal_mode=WAL")
    # a commit is on the disk when it returns, power cuts included
    connection.execute("PRAGMA synchronous=FULL")


def _begin_sqlite(connection: Connection) -> None:
    # those who only read need no lock, which a writer may hold and a read-only disk refuses
    if connection.get_execution_options().get("isolation_level") != "AUTOCOMMIT":
        # the write lock is taken at the start, so that what a transaction reads stays true until it commits
        connection.exec_driver_sql("BEGIN IMMEDIATE")


@contextmanager
def _plain_errors() -> Iterator[None]:
    try:
        yield
    except DatabaseError as reason:
        raise StoreError(f"the database refused ({str(reason.orig).strip()}); nothing was stored.") from reason
    except SQLAlchemyError as reason:
        raise StoreError(f"the database failed ({type(reason).__name__}); nothing was stored.") from reason
