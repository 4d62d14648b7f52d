"""The event log and the snapshots, in SQLite or PostgreSQL through SQLAlchemy.

SQLite's write lock or an advisory lock of PostgreSQL serialises appends, so that numbers of events have no gaps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from kernel_bandits.errors import InputError, KernelBanditsError, needs
from kernel_bandits_server.events import Event, decode, encode_finite, whole_blocks
from kernel_bandits_server.leadership import Leadership, PostgresLeadership, SqliteLeadership, lock_key

with needs("SQLAlchemy", "kernel-bandits-server"):
    import sqlalchemy as sql
    from sqlalchemy import event as hooks
    from sqlalchemy.engine import URL, Connection, Dialect, Engine, make_url
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
_COLUMNS = (EVENTS.c.number, EVENTS.c.kind, EVENTS.c.decision, EVENTS.c.time, EVENTS.c.body)
KEPT_SNAPSHOTS = 2
BUSY_SECONDS = 5.0
READ_AT_ONCE = 5_000
# Rows that one statement appends: the most that fit first. A few sizes, so that databases keep the statements.
ROWS_AT_ONCE = (1000, 256, 32, 4, 1)


class StoreError(KernelBanditsError, RuntimeError):
    """The database did not take or return something; nothing was acknowledged, and the call may be repeated."""


@dataclass(frozen=True)
class Snapshot:
    """The state of a loop after an event.

    Attributes:
        number: of the last event in it.
        fingerprint: of the loop's settings.
        state: what the service keeps beside the policy.
        policy: the file that ``policy.save`` writes.
    """

    number: int
    fingerprint: str
    state: dict[str, Any]
    policy: bytes


class Store:
    """A database of events and snapshots.

    Args:
        address: of the database: ``sqlite:///file.db``, ``postgresql://user@host/name``, or the path of a SQLite file.
    """

    def __init__(self, address: str) -> None:
        self.url = _as_url(address)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        options: dict[str, Any] = {"connect_args": {"timeout": BUSY_SECONDS}} if self.is_sqlite else {}
        if not self.is_sqlite:
            options = {"pool_pre_ping": True, "connect_args": {"connect_timeout": 5}}
        self._engine: Engine = sql.create_engine(self.url, pool_size=5, max_overflow=20, **options)
        if self.is_sqlite:
            hooks.listen(self._engine, "connect", _configure_sqlite)
            hooks.listen(self._engine, "begin", _begin_sqlite)
        self._reading = self._engine.execution_options(isolation_level="AUTOCOMMIT")
        with _plain_errors():
            if not self.is_sqlite:
                # two processes that create the same table at once would get in each other's way
                with self._engine.begin() as connection:
                    connection.execute(sql.select(sql.func.pg_advisory_xact_lock(lock_key("tables"))))
                    _tables.create_all(connection)
            else:
                with self._engine.begin() as connection:
                    _tables.create_all(connection)

    @contextmanager
    def append(self, loop: str) -> Iterator[Log]:
        """Open a transaction that alone appends to a loop; it commits when the context ends without an error."""
        transaction = self.begin(loop)
        with transaction.rolled_back():
            yield transaction.log
        transaction.commit()

    def begin(self, loop: str) -> Transaction:
        """Open a transaction that alone appends to a loop, to be committed or rolled back."""
        with _plain_errors():
            connection = self._engine.connect()
            transaction = Transaction(connection, loop)
            with transaction.rolled_back():
                connection.begin()
                if not self.is_sqlite:
                    connection.execute(sql.select(sql.func.pg_advisory_xact_lock(lock_key(loop))))
        return transaction

    def read(self, loop: str, after: int = 0, limit: int = READ_AT_ONCE) -> list[Event]:
        """Return the events of a loop after a number, in order, at most ``limit``."""
        with _plain_errors(), self._reading.connect() as connection:
            return Log(connection, loop).read(after, limit)

    def read_blocks(self, loop: str, after: int = 0) -> Iterator[Sequence[Event]]:
        """Yield the events of a loop after a number, in order, some whole blocks at a time."""
        while events := whole_blocks(self.read(loop, after, READ_AT_ONCE), READ_AT_ONCE):
            yield events
            after = events[-1].number

    def find(self, loop: str, decision: str) -> dict[str, Event]:
        """Return the events of one decision by kind."""
        return self.find_many(loop, [decision]).get(decision, {})

    def find_many(self, loop: str, decisions: Sequence[str]) -> dict[str, dict[str, Event]]:
        """Return the events of decisions, by decision and kind."""
        with _plain_errors(), self._reading.connect() as connection:
            return Log(connection, loop).find_many(decisions)

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
        return None if row is None else Snapshot(row[0], row[1], decode(row[2]), bytes(row[3]))

    def write_snapshot(self, loop: str, snapshot: Snapshot) -> None:
        """Keep a snapshot in place of the oldest ones."""
        older = sql.select(SNAPSHOTS.c.number).where(SNAPSHOTS.c.loop == loop).order_by(SNAPSHOTS.c.number.desc())
        with _plain_errors(), self._engine.begin() as connection:
            same = (SNAPSHOTS.c.loop == loop, SNAPSHOTS.c.number == snapshot.number)
            connection.execute(sql.delete(SNAPSHOTS).where(*same))
            connection.execute(
                sql.insert(SNAPSHOTS).values(
                    loop=loop,
                    number=snapshot.number,
                    fingerprint=snapshot.fingerprint,
                    state=encode_finite(snapshot.state),
                    policy=snapshot.policy,
                )
            )
            numbers = [row[0] for row in connection.execute(older)][KEPT_SNAPSHOTS:]
            if numbers:
                connection.execute(
                    sql.delete(SNAPSHOTS).where(SNAPSHOTS.c.loop == loop, SNAPSHOTS.c.number.in_(numbers))
                )

    def check(self) -> None:
        """Raise :class:`StoreError` if the database does not respond."""
        with _plain_errors(), self._reading.connect() as connection:
            connection.execute(sql.select(sql.literal(1)))

    def check_writing(self) -> None:
        """Raise :class:`StoreError` if the database does not respond, or if a SQLite file is locked or read-only."""
        if not self.is_sqlite:
            self.check()
            return
        # a transaction begins with the write lock
        with _plain_errors(), self._engine.connect() as connection:
            connection.execute(sql.select(sql.literal(1)))

    def leadership(self) -> Leadership:
        """Return the lock that one process at a time holds."""
        return SqliteLeadership(self.url) if self.is_sqlite else PostgresLeadership(self._engine)

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()


class Transaction:
    """A transaction that appends to a loop, of one thread after the other.

    Args:
        connection: to the database; closed at the end.
        loop: the name of the loop.
    """

    def __init__(self, connection: Connection, loop: str) -> None:
        self._connection = connection
        self.log = Log(connection, loop)

    def commit(self) -> None:
        """Make what was appended durable; after an error nobody knows whether it is."""
        with _plain_errors(), self._connection:
            self._connection.commit()

    @contextmanager
    def rolled_back(self) -> Iterator[None]:
        """Take everything back if the context ends with an error."""
        try:
            with _plain_errors():
                yield
        except BaseException:
            with suppress(SQLAlchemyError):
                self._connection.close()
            raise


class Log:
    """The events of one loop, within a transaction or outside.

    Args:
        connection: to the database.
        loop: the name of the loop.
    """

    def __init__(self, connection: Connection, loop: str) -> None:
        self._connection = connection
        self._loop = loop
        self._prepared: list[tuple[int, tuple[Any, ...]]] = []

    def read(self, after: int, limit: int = READ_AT_ONCE) -> list[Event]:
        """Return the events after a number, in order, at most ``limit``."""
        found = self._connection.exec_driver_sql(_reading(self._connection.dialect), (self._loop, after, limit))
        return [_event(row) for row in found]

    def find_many(self, decisions: Sequence[str]) -> dict[str, dict[str, Event]]:
        """Return the events of decisions, by decision and kind."""
        found: dict[str, dict[str, Event]] = {}
        for start in range(0, len(decisions), 500):
            ids = list(decisions[start : start + 500])
            query = sql.select(*_COLUMNS).where(EVENTS.c.loop == self._loop, EVENTS.c.decision.in_(ids))
            for row in self._connection.execute(query):
                event = _event(row)
                found.setdefault(event.decision, {})[event.kind] = event
        return found

    def append(self, events: Sequence[Event]) -> None:
        """Append events that have their numbers and times."""
        self.prepare(events)
        self.append_prepared()

    def prepare(self, events: Sequence[Event]) -> None:
        """Encode events that are appended next; the rest is the database's work, beside that of other threads."""
        start, loop = 0, self._loop
        for most in ROWS_AT_ONCE:
            while len(events) - start >= most:
                values: list[Any] = []
                for kind, decision, body, time, number in events[start : start + most]:
                    values += (loop, number, kind, decision, time, encode_finite(body))
                self._prepared.append((most, tuple(values)))
                start += most

    def append_prepared(self) -> None:
        """Append the events that were encoded."""
        for count, values in self._prepared:
            self._connection.exec_driver_sql(_insertion(self._connection.dialect, count), values)
        self._prepared = []


def _mark(dialect: Dialect) -> str:
    """Return what stands for a value in the statements of a database's driver."""
    return "?" if dialect.paramstyle == "qmark" else "%s"


# Written once, as the driver takes them: a statement takes longer to write than to execute.
@lru_cache
def _reading(dialect: Dialect) -> str:
    """Return the statement that reads the events of a loop after a number."""
    mark, columns = _mark(dialect), ", ".join(column.name for column in _COLUMNS)
    return f"SELECT {columns} FROM {EVENTS.name} WHERE loop = {mark} AND number > {mark} ORDER BY number LIMIT {mark}"


@lru_cache
def _insertion(dialect: Dialect, count: int) -> str:
    """Return the statement that appends events."""
    columns = [column.name for column in EVENTS.columns]
    row = f"({', '.join([_mark(dialect)] * len(columns))})"
    return f"INSERT INTO {EVENTS.name} ({', '.join(columns)}) VALUES {', '.join([row] * count)}"


def _event(row: Any) -> Event:
    return Event(row[1], row[2], decode(row[4]), row[3], row[0])


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
