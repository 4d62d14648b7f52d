"""A description is inferred, printed as code, written as TOML, and saved with the policy."""

import warnings
from datetime import date

import numpy as np
import pandas as pd
import polars as pl
import pytest
from by_hand import tables
from hypothesis import given
from hypothesis import strategies as st

import kernel_bandits as kb
from kernel_bandits.persistence import save

ROWS = [
    {
        "age": 30 + i,
        "income": None if i % 5 == 0 else 1000.0 * i,
        "country": ["FR", "DE", "IT"][i % 3],
        "city": f"city {i}",
        "member": i % 2 == 0,
        "clicked": i % 2,
        "hour": i % 24,
        "birth_month": 1 + i % 12,
        "when": date(2024, 1, 1 + i % 28),
        "since": f"2023-01-{1 + i % 28:02d}T10:00",
        "topic": [1.0, 2.0, float(i)],
        "constant": 7,
    }
    for i in range(40)
]
EXPECTED = {
    "age": kb.Numeric(),
    "income": kb.Numeric(missing=True),
    "country": kb.Categorical(["DE", "FR", "IT"]),
    "city": kb.Categorical(),
    "member": kb.Boolean(),
    "clicked": kb.Boolean(),
    "hour": kb.Cyclic(24),
    "birth_month": kb.Cyclic(12),
    "when": kb.Date(),
    "since": kb.Date(),
    "topic": kb.Embedding(3),
    "constant": kb.Numeric(),
}


@pytest.mark.parametrize("source", [lambda: ROWS, lambda: pd.DataFrame(ROWS), lambda: pl.DataFrame(ROWS)])
def test_a_sample_suggests_what_a_person_would(source):
    features = kb.Features.infer(source(), actions=["red", "blue", "red"])
    assert features == kb.Features(EXPECTED, kb.Arms(["red", "blue"]))
    policy = kb.TablePolicy(kb.ek_ucb(kb.Gaussian(10.0), seed=0), features)
    policy.update_many(source(), ["red"] * 40, np.zeros(40))
    assert policy.round_index == 40


def test_actions_are_inferred_too():
    offers = [{"price": 1.5, "brand": "a"}, {"price": 2.5, "brand": "b"}]
    for form in (offers, pd.DataFrame(offers)):
        features = kb.Features.infer([{"x": 1.5}], form)
        assert features.actions == {"price": kb.Numeric(), "brand": kb.Categorical(["a", "b"])}
    arms = kb.Arms(["a"], room=3)
    assert kb.Features.infer([{"x": 1.5}], arms).actions is arms
    assert kb.Features.infer([{"x": 1.5}], pd.Series([3, 1, 3])).actions == kb.Arms([3, 1])


def test_text_that_reads_as_numbers_is_pointed_out():
    with pytest.warns(UserWarning, match="column 'age' is text that reads as numbers, such as '34'"):
        assert kb.Features.infer([{"age": "34"}, {"age": "35"}], ["a"]).context == {"age": kb.Categorical(["34", "35"])}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kb.Features.infer([{"age": "34 years"}, {"age": "35"}], ["a"])


@pytest.mark.parametrize(
    ("frame", "actions", "words"),
    [
        ([], ["a"], "expected a sample of rows, got none"),
        ([{"a": None}], ["a"], "column 'a' is empty"),
        ([{"a": [1.0]}, {"a": [1.0, 2.0]}], ["a"], r"vectors of lengths \[1, 2\]"),
        ([{"a": {}}], ["a"], "column 'a': expected text"),
        ([{"a": 1}], "red", "actions: expected the names of the arms"),
    ],
)
def test_a_sample_that_suggests_nothing_is_refused(frame, actions, words):
    with pytest.raises(kb.InputError, match=words):
        kb.Features.infer(frame, actions)


DESCRIPTIONS = [
    kb.Features(EXPECTED, kb.Arms(["red", "blue"], room=3)),
    kb.Features({}, {"price": kb.Numeric(range=(1, 2.5), logarithm=True), 'odd name é"\\': kb.Boolean(missing=True)}),
    kb.Features(
        {"size": kb.Ordered(["s", "m", 3, 2.5, True])},
        kb.Arms({"a": {"p": 1.5, "q": "x"}, 2: {"p": 2, "q": "y"}}, {"p": kb.Numeric(), "q": kb.Categorical()}),
    ),
    kb.Features({"x": kb.Cyclic(7)}, kb.Arms([1, 2], columns={"p": kb.Numeric()}, indicator=False)),
]


@pytest.mark.parametrize("features", DESCRIPTIONS, ids=range(len(DESCRIPTIONS)))
def test_a_description_prints_as_code_and_is_written_as_toml(features, tmp_path):
    assert eval(str(features), {"kb": kb}) == features
    assert kb.Features.from_toml(features.to_toml()) == features
    (tmp_path / "features.toml").write_text(features.to_toml())
    assert kb.Features.from_toml(tmp_path / "features.toml") == features
    assert kb.Features.from_toml(str(tmp_path / "features.toml")).layout == features.layout


@given(tables(), tables(least=1), st.lists(st.text() | st.integers(), min_size=1, unique=True))
def test_any_description_comes_back_from_code_and_toml(contexts, actions, names):
    for side in (actions[0], kb.Arms(names), kb.Arms({name: {"p": 1.0} for name in names}, {"p": kb.Numeric()})):
        features = kb.Features(contexts[0], side)
        assert eval(str(features), {"kb": kb}) == features
        assert kb.Features.from_toml(features.to_toml()) == features


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[context]\n", "one of the tables"),
        ("[contxt]\n[arms]\nnames = ['a']\n", "unknown table 'contxt'; did you mean 'context'"),
        ("[context]\nx = 3\n[arms]\nnames = ['a']\n", "context.x: expected { kind"),
        ("[context]\nx = {kind = 'Numric'}\n[arms]\nnames = ['a']\n", "did you mean 'Numeric'"),
        ("[context]\nx = {kind = 'Cyclic'}\n[arms]\nnames = ['a']\n", "context.x: .*period"),
        ("[context]\n[arms]\nnames = ['a']\nrom = 3\n", "arms: .*rom"),
        ("not toml\n", "expected TOML"),
        ("/nowhere/features.toml", "cannot read"),
    ],
)
def test_toml_that_makes_no_sense_is_refused(text, words):
    with pytest.raises(kb.InputError, match=words):
        kb.Features.from_toml(text)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: kb.Numeric(range=(1, 1)), "range: expected low < high"),
        (lambda: kb.Numeric(range=3), "range: expected two numbers"),
        (lambda: kb.Numeric(range=(0, 1), logarithm=True), "limits above 0"),
        (lambda: kb.Numeric(missing="yes"), "missing: expected True or False"),
        (lambda: kb.Ordered(["a"]), "levels: expected at least 2, got 1"),
        (lambda: kb.Ordered("abc"), "levels: expected a list of levels, got 'abc'"),
        (lambda: kb.Categorical(["a", None]), "set missing=True instead"),
        (lambda: kb.Categorical([["a"]]), "levels: expected text"),
        (lambda: kb.Cyclic(0), "period"),
        (lambda: kb.Embedding(0), "dimension"),
        (
            lambda: kb.Features({"a": 3}, ["x"]),
            r"context: expected a description such as kb.Numeric\(\) for column 'a'",
        ),
        (lambda: kb.Features({3: kb.Numeric()}, ["x"]), "names are text"),
        (lambda: kb.Features(["a"], ["x"]), "context: expected columns by name"),
        (lambda: kb.Features({}, {}), "actions: expected at least one column"),
        (lambda: kb.Features({}, 3), "actions: expected kb.Arms"),
    ],
)
def test_a_description_that_makes_no_sense_is_refused(build, words):
    with pytest.raises(kb.InputError, match=words):
        build()


def build(seed=0):
    features = kb.Features(
        {"x": kb.Numeric(missing=True), "country": kb.Categorical(missing=True), "when": kb.Date(missing=True)},
        kb.Arms(["red", "blue"], room=2),
    )
    return kb.TablePolicy(kb.ek_ucb(kb.Gaussian(1.0), seed=seed), features)


def rows(count, seed=0):
    generator = np.random.default_rng(seed)
    for i in range(count):
        gap = generator.random() < 0.2
        country = None if gap else f"country {generator.integers(40)}"
        yield {"x": None if gap else float(generator.normal()), "country": country, "when": date(2024, 1, 1 + i % 28)}


def play(policy, count, seed=0):
    arms = []
    for number, row in enumerate(rows(count, seed)):
        decision = policy.select(row, ["red", "blue", f"arm {number % 9}"])
        policy.update(decision, reward=np.sin(number))
        arms.append((decision.arm, decision.mean))
    return arms


def test_a_saved_policy_resumes_with_the_levels_it_has_met(tmp_path):
    policy = build()
    play(policy, 60)
    policy.ask({"x": 0.0, "country": "pending", "when": None})
    policy.save(tmp_path / "policy")
    loaded = kb.load(tmp_path / "policy")
    assert isinstance(loaded, kb.TablePolicy)
    assert loaded.features == policy.features
    assert loaded.diagnostics().levels == policy.diagnostics().levels
    assert loaded.arms == policy.arms
    assert play(loaded, 40, seed=1) == play(policy, 40, seed=1)
    loaded.tell(0, 1.0)
    loaded.save(tmp_path / "again")
    policy.tell(0, 1.0)
    policy.save(tmp_path / "policy")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "policy").read_bytes()


def test_a_damaged_file_is_refused(tmp_path):
    policy = build()
    play(policy, 5)
    policy.save(tmp_path / "policy")
    content = bytearray((tmp_path / "policy").read_bytes())
    generator = np.random.default_rng(0)
    for place in generator.integers(len(content), size=50):
        damaged = bytearray(content)
        damaged[place] ^= 0xFF
        (tmp_path / "damaged").write_bytes(damaged)
        with pytest.raises(kb.InputError):
            kb.load(tmp_path / "damaged")


def test_odd_names_and_levels_are_saved(tmp_path):
    policy = kb.TablePolicy(kb.uniform(seed=0), kb.Features({"é\x00": kb.Categorical()}, ["\ud800", 3, 2.5, False]))
    for level in ("", "\udfff", 10**30, -2.5, True):
        policy.update({"é\x00": level}, "\ud800", 1.0)
    policy.save(tmp_path / "policy")
    loaded = kb.load(tmp_path / "policy")
    assert loaded.arms == policy.arms
    assert loaded.diagnostics().levels == policy.diagnostics().levels


def test_save_as_a_function_takes_it_too(tmp_path):
    save(build(), tmp_path / "policy")
    assert isinstance(kb.load(tmp_path / "policy"), kb.TablePolicy)
