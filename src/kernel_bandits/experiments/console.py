"""What the command line shows: progress with the time left, and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import TypeAlias

import rich.table
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from kernel_bandits.experiments.report import Table

PLAIN_LINES = 10


Show: TypeAlias = Callable[[int, int, str], None]


@contextmanager
def progress(console: Console) -> Iterator[Show]:
    """A function to call with how many are done, of how many, and a label: a bar, or in a log a line now and then."""
    if console.is_terminal:
        columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task("", total=None)
            yield lambda done, total, label: bar.update(task, completed=done, total=total, description=escape(label))
    else:
        yield _plain_lines()


def _plain_lines() -> Show:
    """For logs, where a bar that redraws itself is noise."""
    started, first, told = perf_counter(), None, 0

    def show(done: int, total: int, label: str) -> None:
        nonlocal first, told
        first = done if first is None else first
        # What was there from the start says nothing about the speed.
        if done > first and done * PLAIN_LINES // total > told:
            told = done * PLAIN_LINES // total
            elapsed = perf_counter() - started
            left = elapsed / (done - first) * (total - done)
            print(f"{done} of {total}, {elapsed:.0f} s, about {left:.0f} s left ({label})", flush=True)

    return show


def drawn(table: Table) -> rich.table.Table:
    """A table for the terminal; a first cell is not repeated.

    Columns from the third on are numbers: they stand to the right, and where room is short the others are broken.
    """
    shown = rich.table.Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, caption=table.note)
    for number, head in enumerate(table.heads):
        is_number = number > 1
        shown.add_column(head, justify="right" if is_number else "left", no_wrap=is_number, overflow="fold")
    before = ""
    for row in table.rows:
        if before and row[0] != before:
            shown.add_section()
        shown.add_row("" if row[0] == before else escape(row[0]), *map(escape, row[1:]))
        before = row[0]
    return shown
