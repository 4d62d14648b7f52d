"""Values that change by being replaced, and two that grow without being copied.

State is never changed in place as seen from outside: whoever holds a value keeps it, and a call that fails or is
interrupted leaves the one before. :class:`Rows` and :class:`Pending` share memory with the values they grew from.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from operator import attrgetter
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
V = TypeVar("V")


def evolve(value: T, **changes: Any) -> T:
    """Return a copy of an object with slots, some of them replaced."""
    twin = copied(value)
    for name, changed in changes.items():
        # past the guard of frozen dataclasses
        object.__setattr__(twin, name, changed)
    return twin


def copied(value: T) -> T:
    """Return a copy of an object with slots, which may be written to while nobody else holds it."""
    cls: Any = type(value)
    copy: T = _copier(cls)(value)
    return copy


@cache
def _copier(cls: Any) -> Callable[[Any], Any]:
    """Return a function that copies objects of a class with slots.

    It is written out, as dataclasses write theirs: loops over slots took a quarter of a round with 64 anchors.
    """
    is_frozen = cls.__setattr__ is not object.__setattr__
    line = "    put(twin, {0!r}, value.{0})" if is_frozen else "    twin.{0} = value.{0}"
    lines = ["def copier(value):", "    twin = new(cls)", *map(line.format, fields_of(cls)), "    return twin"]
    names: dict[str, Any] = {"new": object.__new__, "put": object.__setattr__, "cls": cls}
    exec("\n".join(lines), names)
    copier: Callable[[Any], Any] = names["copier"]
    return copier


def fields_of(cls: type) -> tuple[str, ...]:
    """Return the names of all slots of a class, those that it inherits first: its state."""
    names: list[str] = []
    for one in reversed(cls.__mro__):
        slots = one.__dict__.get("__slots__", ())
        names += (slots,) if isinstance(slots, str) else slots
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))


def fact(path: str) -> Any:
    """Return a read-only attribute that is looked up in C: a Python function for each costs percents of a round."""
    return property(attrgetter(path))


class _Block:
    """Rows of which the first few are taken; whoever holds all that are taken may take the next."""

    __slots__ = ("rows", "taken")

    def __init__(self, rows: NDArray[Any], taken: int) -> None:
        self.rows, self.taken = rows, taken


class Rows:
    """Numbers or vectors that are only ever appended to, in blocks: growth copies nothing.

    Two values that grew from the same one share its rows. The second to append to them copies the last block first.

    Attributes:
        size: how many there are.
        length: of a block, in rows.
        tail: the rows of the last block, a view: all of them while there is only one.
    """

    __slots__ = ("_blocks", "length", "size", "tail")

    def __init__(self, length: int = 512) -> None:
        self._blocks: tuple[_Block, ...] = ()
        self.length: int = length
        self.size: int = 0
        self.tail: NDArray[Any] = np.empty((0, 0))

    def __len__(self) -> int:
        return self.size

    def appended(self, row: Any) -> Self:
        """Return these with one more row, a number or a vector."""
        place, blocks = self.size % self.length, self._blocks
        if not place:
            like = np.asarray(row)
            blocks = (*blocks, _Block(np.zeros((self.length, *like.shape), dtype=like.dtype), 0))
        elif blocks[-1].taken != place:
            blocks = (*blocks[:-1], _Block(blocks[-1].rows.copy(), place))
        block = blocks[-1]
        # taken before it is written: if that fails, the next to append copies
        block.taken = place + 1
        block.rows[place] = row
        # not evolve: every round appends some rows
        after = object.__new__(type(self))
        after.length, after.size = self.length, self.size + 1
        after._blocks, after.tail = blocks, block.rows[: place + 1]
        return after

    def extended(self, rows: NDArray[Any]) -> Self:
        """Return these with further rows (n, …), all as long as the first."""
        if len(rows) == 1:
            return self.appended(rows[0])
        blocks, size, done = list(self._blocks), self.size, 0
        while done < len(rows):
            place = size % self.length
            if not place:
                blocks.append(_Block(np.zeros((self.length, *rows.shape[1:]), dtype=rows.dtype), 0))
            elif blocks[-1].taken != place:
                blocks[-1] = _Block(blocks[-1].rows.copy(), place)
            count = min(self.length - place, len(rows) - done)
            blocks[-1].taken = place + count
            blocks[-1].rows[place : place + count] = rows[done : done + count]
            done, size = done + count, size + count
        tail = blocks[-1].rows[: (size - 1) % self.length + 1] if blocks else self.tail
        return evolve(self, _blocks=tuple(blocks), size=size, tail=tail)

    def blocks(self) -> Iterator[NDArray[Any]]:
        """Yield views of the rows, block by block."""
        left = self.size
        for block in self._blocks:
            yield block.rows[:left]
            left -= self.length

    @property
    def array(self) -> NDArray[Any]:
        """All rows, one fresh array (n, …)."""
        return np.concatenate(list(self.blocks())) if self.size else np.empty(0)

    @property
    def nbytes(self) -> int:
        """The memory of all blocks."""
        return sum(block.rows.nbytes for block in self._blocks)

    @classmethod
    def of(cls, rows: NDArray[Any], length: int = 512) -> Self:
        """Return rows (n, …) to grow from."""
        return cls(length).extended(rows)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        del memo  # nobody can tell a copy from a value that is never changed
        return self

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return type(self).of, (self.array, self.length)


# Keys that share a chunk: an update copies one chunk and the list of chunks, a few hundred entries each.
CHUNK = 256


class Pending(Mapping[int, V]):
    """What belongs to decisions that await their reward, by their number, oldest first.

    A change copies a chunk of ``CHUNK`` numbers and not the whole: there may be hundreds of thousands.
    """

    __slots__ = ("_chunks", "_size")

    def __init__(self, items: Mapping[int, V] | None = None) -> None:
        self._chunks: dict[int, dict[int, V]] = {}
        self._size = 0
        for key, value in (items or {}).items():
            self._chunks.setdefault(key // CHUNK, {})[key] = value
            self._size += 1

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, key: int) -> V:
        return self._chunks[key // CHUNK][key]

    def __contains__(self, key: object) -> bool:
        return isinstance(key, int) and key in self._chunks.get(key // CHUNK, ())

    def __iter__(self) -> Iterator[int]:
        for chunk in self._chunks.values():
            yield from chunk

    def since(self, key: int) -> Iterator[int]:
        """Yield the keys from this one on, in order."""
        first = max(key, 0) // CHUNK
        for number in sorted(number for number in self._chunks if number >= first):
            yield from (one for one in sorted(self._chunks[number]) if one >= key)

    def before(self, key: int) -> Iterator[int]:
        """Yield the keys before this one."""
        for number, chunk in self._chunks.items():
            if number * CHUNK < key:
                yield from (one for one in chunk if one < key)

    def with_items(self, items: Mapping[int, V]) -> Pending[V]:
        """Return it with further entries, or others in their place."""
        changed = Pending[V]()
        changed._chunks, changed._size = self._chunks.copy(), self._size
        own: set[int] = set()
        for key, value in items.items():
            number = key // CHUNK
            if number not in own:
                changed._chunks[number] = dict(self._chunks.get(number, ()))
                own.add(number)
            chunk = changed._chunks[number]
            changed._size += key not in chunk
            chunk[key] = value
        return changed

    def without(self, keys: Collection[int]) -> Pending[V]:
        """Return it without these entries."""
        if len(keys) >= self._size and all(key in self for key in keys):
            return Pending()
        changed = Pending[V]()
        changed._chunks, changed._size = self._chunks.copy(), self._size
        own: set[int] = set()
        for key in keys:
            number = key // CHUNK
            if number not in own:
                changed._chunks[number] = dict(self._chunks[number])
                own.add(number)
            del changed._chunks[number][key]
            changed._size -= 1
            if not changed._chunks[number]:
                del changed._chunks[number]
                own.discard(number)
        return changed
