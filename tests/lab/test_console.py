"""What the command line draws."""

import io

from kernel_bandits_lab.cli import terminal_table
from kernel_bandits_lab.tables import Table
from rich.console import Console


def test_a_table_that_is_too_wide_breaks_labels_and_keeps_numbers_whole():
    rows = [
        ("a place with a long name", f"a policy with a long name, λ = {size}", f"{size}.5 ± 12.7") for size in (1, 2)
    ]
    written = io.StringIO()
    console = Console(file=written, width=40)
    console.print(terminal_table(Table("", ("environment", "policy", "cumulative regret"), rows)))
    told = written.getvalue()
    assert max(map(len, told.splitlines())) <= 40
    assert all(text in told for text in ("cumulative regret", "1.5 ± 12.7", "2.5 ± 12.7"))
    letters = "".join(line[:20] for line in told.splitlines()).replace(" ", "")
    assert all(letters.count(word) == count for word, count in (("environ", 1), ("long", 1 + 2), ("…", 0)))
