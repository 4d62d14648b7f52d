"""Tables become problems of the right shape, from tiny files made here: nothing is downloaded."""

import gzip
import io
import zipfile

import numpy as np
import pytest
from bakeoff import sources
from bakeoff.encoding import closeness, column, encode, posted_prices, right_or_wrong
from bakeoff.problem import Problem, problem
from bakeoff.sources import Source, SourceError
from bakeoff.tables import all_tables, choices, keel, numbers, trial
from bakeoff.tables.base import Table


def test_columns_are_numbers_only_if_all_values_are():
    assert column([" 1", "2.5 "]).tolist() == [1.0, 2.5]
    assert column(["1", " b "]).tolist() == ["1", "b"]


def test_numbers_are_standardised_and_categories_are_indicators_of_one_variable():
    contexts, variables = encode([np.array([1.0, 3.0, 5.0]), np.array(["b", "a", "b"]), np.array([7.0, 7.0, 7.0])])
    assert variables == [0, 1, 1, 2]
    np.testing.assert_allclose(contexts[:, 0], np.array([-1, 0, 1]) * np.sqrt(1.5))
    assert contexts[:, 1:3].tolist() == [[0, 1], [1, 0], [0, 1]]
    assert not contexts[:, 3].any(), "a constant column says nothing"


def test_a_tiny_nearly_constant_column_of_large_numbers_counts_as_constant():
    contexts, _ = encode([np.full(5, 1e9)])
    assert not contexts.any()


def test_keel_files_have_the_label_last():
    played = keel.read(b"1.0, x, van \n2.0, y, bus\n\n3.0, x, van\n")
    assert played.contexts.shape == (3, 3)
    assert played.variables.tolist() == [0, 1, 1]
    assert played.rewards.tolist() == [[0, 1], [1, 0], [0, 1]], "classes in sorted order, without white space"
    assert played.is_binary
    assert not played.described
    assert not played.is_log


def test_one_arm_per_row_is_right():
    assert right_or_wrong(["2", "10", "2"]).sum(axis=1).tolist() == [1, 1, 1]


def test_a_price_is_taken_where_the_value_is_not_below_it():
    takings = posted_prices(np.array([1.0, 2.5, 4.0]), np.array([1.0, 2.0, 4.0]))
    assert takings.tolist() == [[0.25, 0, 0], [0.25, 0.5, 0], [0.25, 0.5, 1.0]]


def test_a_guess_is_paid_by_its_distance_in_units_of_the_range():
    assert closeness(np.array([0.0, 10.0]), np.array([0.0, 5.0])).tolist() == [[1.0, 0.5], [0.0, 0.5]]


def test_levels_are_the_middles_of_equal_parts():
    np.testing.assert_allclose(numbers.quantiles(np.arange(101.0), 4), [12.5, 37.5, 62.5, 87.5])


def test_alternatives_are_encoded_together_and_keep_their_places():
    price = [np.array([1.0, 3.0]), np.array([3.0, 1.0])]
    fuel = [np.array(["gas", "oil"]), np.array(["oil", "oil"])]
    features = choices.alternatives([price, fuel])
    assert features.shape == (2, 2, 3)
    assert features[0].tolist() == [[-1, 1, 0], [1, 0, 1]]
    assert features[1].tolist() == [[1, 0, 1], [-1, 0, 1]]
    assert choices.named(features)[1, 1].tolist() == [0, 1, -1, 0, 1]
    assert choices.chosen(["b", "a"], ["a", "b"]).tolist() == [[0, 1], [1, 0]]


def test_a_replayed_log_knows_the_reward_of_one_arm_and_the_amount_that_was_taken():
    amounts = np.array([0.0, 0.3, 0.9, 1.5, 3.0])
    rewards, centres = trial.replay(np.array([1.0, 1.0, 0.0, 1.0, 1.0]), amounts)
    assert np.isnan(rewards).sum(axis=1).tolist() == [4] * 5
    np.testing.assert_allclose(np.diag(rewards), [1.0, 0.9, 0.0, 0.5, 0.0])
    np.testing.assert_allclose(centres, amounts)
    log = problem(np.zeros((5, 1)), [0], rewards, np.ones((5, 5, 1)) * centres[None, :, None], amounts[:, None] + 0.1)
    assert log.is_log
    seen = log.observed(1, 1, log.offer(1))
    assert seen.actions[:, 0].tolist() == [0.0, pytest.approx(0.4), 0.9, 1.5, 3.0]


def test_thinning_makes_intervals_equally_frequent():
    intervals = np.repeat([0, 1, 2], [50, 7, 20])
    kept = trial.thinned(intervals)
    assert np.bincount(intervals[kept]).tolist() == [7, 7, 7]
    assert (np.diff(kept) > 0).all()


def test_described_alternatives_are_seen_flat_by_libraries_without_action_features():
    played = problem(np.array([[5.0]]), [0], np.array([[0.0, 1.0]]), np.array([[[1.0, 2.0], [3.0, 4.0]]]))
    assert played.offer(0).flat.tolist() == [5, 1, 2, 3, 4]
    names = problem(np.array([[5.0]]), [0], np.array([[0.0, 1.0]]))
    assert names.offer(0).flat.tolist() == [5]
    assert names.offer(0).actions.tolist() == [[1, 0], [0, 1]]


def test_shapes_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match=r"contexts: expected shape \(2,\)"):
        problem(np.zeros((3, 1)), [0], np.zeros((2, 2)))
    with pytest.raises(ValueError, match="variables"):
        problem(np.zeros((2, 2)), [0], np.zeros((2, 2)))
    with pytest.raises(ValueError, match="actions"):
        problem(np.zeros((2, 1)), [0], np.zeros((2, 2)), np.zeros((2, 3, 1)))


def test_a_problem_survives_its_file(tmp_path):
    written = keel.read(b"1,a,0\n2,b,1\n3,a,1\n")
    written.save(tmp_path / "problem.npz")
    read = Problem.load(tmp_path / "problem.npz")
    np.testing.assert_array_equal(read.contexts, written.contexts)
    np.testing.assert_array_equal(read.rewards, written.rewards)
    assert [path.name for path in tmp_path.iterdir()] == ["problem.npz"], "no draft is left behind"


def _wheel(folder, content):
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / "some_tables-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("tables/one.dat", content)


def test_a_table_is_read_from_a_wheel_and_checked(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "CHECKSUMS", tmp_path / "checksums.json")
    source = Source("some-tables", "1.0", ("tables/one.dat",))
    table = Table("one", "classes", source, keel.read, (2, 1, 2))
    _wheel(tmp_path / "wheels", b"1,a\n2,b\n")
    with pytest.raises(SourceError, match="--pin"):
        table.prepare(tmp_path / "wheels", tmp_path)
    sources.pin([source], tmp_path / "wheels")
    assert Problem.load(table.prepare(tmp_path / "wheels", tmp_path)).rows == 2
    _wheel(tmp_path / "wheels", b"1,a\n2,a\n")
    with pytest.raises(SourceError, match="expected SHA-256"):
        table.prepare(tmp_path / "wheels", tmp_path)


def test_a_table_of_another_shape_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "CHECKSUMS", tmp_path / "checksums.json")
    source = Source("some-tables", "1.0", ("tables/one.dat",))
    _wheel(tmp_path / "wheels", b"1,a\n2,b\n")
    sources.pin([source], tmp_path / "wheels")
    with pytest.raises(ValueError, match=r"expected \(3, 1, 2\).*got \(2, 1, 2\)"):
        Table("one", "classes", source, keel.read, (3, 1, 2)).prepare(tmp_path / "wheels", tmp_path)


def test_a_file_that_the_wheel_lacks_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "CHECKSUMS", tmp_path / "checksums.json")
    _wheel(tmp_path / "wheels", b"")
    with pytest.raises(SourceError, match=r"two\.dat: not in some_tables-1\.0"):
        sources.pin([Source("some-tables", "1.0", ("tables/two.dat",))], tmp_path / "wheels")


def test_every_table_has_a_recorded_checksum_and_the_mix_is_what_the_page_promises():
    tables = all_tables()
    recorded = sources.checksums()
    assert [name for name, table in tables.items() if str(table.source) not in recorded] == []
    real = [table for table in tables.values() if not table.is_synthetic]
    kinds = [table.kind for table in real]
    assert kinds.count("classes") >= 30
    assert (kinds.count("numbers"), kinds.count("choices"), kinds.count("trial")) >= (3, 2, 1)
    assert sum(table.shape[0] >= 5000 for table in real) >= 8
    assert sum(table.shape[2] >= 10 for table in real) >= 5


def test_diabetes_reads_two_files():
    measurements, progression = io.BytesIO(), io.BytesIO()
    with gzip.GzipFile(fileobj=measurements, mode="w") as file:
        file.write(b"59 2 32.1\n48 1 21.6\n72 2 30.5\n")
    with gzip.GzipFile(fileobj=progression, mode="w") as file:
        file.write(b"1.0e2\n2.0e2\n3.0e2\n")
    played = numbers.diabetes(measurements.getvalue(), progression.getvalue())
    assert played.contexts.shape == (3, 3)
    assert played.rewards.shape == (3, numbers.GUESSES)
    assert not played.is_binary


def test_tables_that_the_default_was_designed_on_are_marked():
    tables = all_tables()
    described, prices = {"car", "heating", "travel-mode", "thornton-hiv"}, {table.name for table in numbers.TABLES}
    marked = {name for name, table in tables.items() if table.is_development}
    assert marked == set(keel.DEVELOPMENT) | described | prices | {"adult"}
    assert {name for name, table in tables.items() if table.is_synthetic} == set(keel.SYNTHETIC)
    aside = {name for name, table in tables.items() if not table.is_development and not table.is_synthetic}
    small = {"mammographic", "movement_libras", "bupa", "phishing"}
    assert aside == small | {"marketing"}
