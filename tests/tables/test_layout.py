"""A layout says which columns of a joint point belong together."""

import numpy as np
import pytest

import kernel_bandits as kb
from kernel_bandits.tables import ColumnGroup, Layout

GROUPS = (
    ColumnGroup("age", "age", "numeric", "context", ("age",)),
    ColumnGroup("when: trend", "when", "numeric", "context", ("when: trend",)),
    ColumnGroup("when: time of day", "when", "cyclic", "context", ("when: sin", "when: cos")),
    ColumnGroup("arm", "arm", "arm", "action", ("arm=red", "arm=blue", "arm=2")),
    ColumnGroup("price", "price", "numeric", "action", ("price",)),
)


def test_columns_follow_their_groups():
    layout = Layout(GROUPS)
    assert layout.dimension == 8
    np.testing.assert_array_equal(layout.labels, [0, 1, 2, 2, 3, 3, 3, 4])
    assert layout.names[2:6] == ("when: sin", "when: cos", "arm=red", "arm=blue")
    assert layout.variables == (("context", "age"), ("context", "when"), ("action", "arm"), ("action", "price"))
    np.testing.assert_array_equal(layout.columns_of("context", "when"), [1, 2, 3])


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ((GROUPS[0], GROUPS[0]), "'age' twice"),
    ],
)
def test_a_layout_that_makes_no_sense_is_refused(groups, words):
    with pytest.raises(kb.InputError, match=words):
        Layout(groups)
