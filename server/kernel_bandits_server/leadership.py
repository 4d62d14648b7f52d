"""The lock that one process at a time holds: the leader settles silent decisions and writes snapshots."""

from __future__ import annotations

import hashlib
import sqlite3
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Any

from kernel_bandits.errors import needs

with needs("SQLAlchemy", "kernel-bandits-server"):
    import sqlalchemy as sql
    from sqlalchemy.engine import URL, Connection, Engine
    from sqlalchemy.exc import SQLAlchemyError


def lock_key(name: str) -> int:
    """Return a number for PostgreSQL's advisory locks, which are shared by all programs of a database."""
    digest = hashlib.sha256(f"kernel-bandits {name}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


class Leadership(ABC):
    """A lock that the database gives to one process and takes back when that process dies."""

    @abstractmethod
    def hold(self) -> bool:
        """Return whether this process holds the lock, and try to get it if not."""

    @abstractmethod
    def release(self) -> None:
        """Give the lock back."""


class SqliteLeadership(Leadership):
    """An exclusive transaction on an empty database beside the log, open as long as its process lives."""

    def __init__(self, url: URL) -> None:
        self._path = f"{url.database}.leader"
        self._connection: Any = None

    def hold(self) -> bool:
        if self._connection is None:
            connection = None
            try:
                connection = sqlite3.connect(self._path, timeout=0.0, isolation_level=None, check_same_thread=False)
                connection.execute("BEGIN EXCLUSIVE")
            except sqlite3.Error:
                if connection is not None:
                    connection.close()
                return False
            self._connection = connection
        return True

    def release(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class PostgresLeadership(Leadership):
    """An advisory lock of a session, which ends with its connection."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connection: Connection | None = None

    def hold(self) -> bool:
        try:
            if self._connection is None:
                connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
                if not connection.scalar(sql.select(sql.func.pg_try_advisory_lock(lock_key("leader")))):
                    connection.close()
                    return False
                self._connection = connection
            self._connection.execute(sql.select(sql.literal(1)))
        except SQLAlchemyError:
            self.release()
            return False
        return True

    def release(self) -> None:
        if self._connection is not None:
            # the server notices the end of a session a moment later; until then another could not take over
            with suppress(SQLAlchemyError):
                self._connection.execute(sql.select(sql.func.pg_advisory_unlock(lock_key("leader"))))
            # the lock ends with the session at the latest
            self._connection.invalidate()
            self._connection.close()
            self._connection = None
