"""Datasets learned as sums over their parts: the posterior of ``update_many``, in any number of files and workers."""

import os
import signal
import threading
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

import kernel_bandits as kb
from kernel_bandits import logs

KERNEL = kb.Gaussian(0.6)
ROWS = 6_000


def table(rows=ROWS, seed=0):
    generator = np.random.default_rng(seed)
    points = generator.random((rows, 3))
    reward = np.sin(5 * points[:, 0]) * points[:, 2] + 0.1 * generator.normal(size=rows)
    return {"context_a": points[:, 0], "context_b": points[:, 1], "action_0": points[:, 2], "reward": reward}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three files of two row groups each."""
    path = tmp_path_factory.mktemp("dataset")
    columns = table()
    for number, rows in enumerate(np.array_split(np.arange(ROWS), 3)):
        part = pa.table({name: values[rows] for name, values in columns.items()})
        parquet.write_table(part, path / f"part-{number}.parquet", row_group_size=len(rows) // 2)
    return path


def fresh(**options):
    return kb.ek_ucb(KERNEL, dictionary=kb.Kors(history="none", **options), seed=0)


def predictions(policy):
    points = np.random.default_rng(5).random((50, 3))
    return policy.posterior.predict(points)


def assert_same(one, other, tolerance=1e-8):
    for name in ("mean", "std"):
        np.testing.assert_allclose(getattr(predictions(one), name), getattr(predictions(other), name), atol=tolerance)
    for name in ("log_determinant", "effective_dimension", "residual_trace", "round_index"):
        ours, theirs = getattr(one.posterior, name), getattr(other.posterior, name)
        assert ours == pytest.approx(theirs, rel=tolerance, abs=tolerance)


def by_update_many(anchors):
    policy = kb.ek_ucb(KERNEL, dictionary=kb.Fixed(anchors, history="none"), seed=0)
    columns = table()
    contexts = np.column_stack([columns["context_a"], columns["context_b"]])
    policy.update_many(contexts, columns["action_0"][:, None], columns["reward"])
    return policy


def test_the_posterior_is_that_of_update_many_with_these_anchors(folder):
    policy = fresh()
    report = logs.learn(policy, folder)
    assert report.rows == policy.round_index == ROWS
    assert report.anchors == policy.dictionary_size
    assert_same(policy, by_update_many(policy.dictionary_points))
    # and close to what was there to learn
    points = np.random.default_rng(5).random((50, 3))
    truth = np.sin(5 * points[:, 0]) * points[:, 2]
    assert np.abs(predictions(policy).mean - truth).max() < 0.1
    assert report.unexplained < 0.05


def test_the_policy_goes_on_online_and_can_be_saved(folder, tmp_path):
    policy = fresh()
    logs.learn(policy, folder)
    policy.save(tmp_path / "policy")
    again = kb.load(tmp_path / "policy")
    for each in (policy, again):
        for t in range(20):
            decision = each.select([0.05 * t, 0.5], [[0.1], [0.5], [0.9]])
            each.update(decision.context, decision.action, 0.1 * t)
    assert policy.round_index == ROWS + 20
    assert_same(policy, again, 0.0)
    with pytest.raises(kb.InputError, match="context: expected length 2"):
        policy.update([0.5], [0.5], 1.0)


def test_points_that_the_sample_missed_become_anchors(tmp_path):
    columns = table(3000)
    far = np.arange(3000) % 100 == 99
    columns["context_a"] = np.where(far, columns["context_a"] + 8.0, columns["context_a"])
    parquet.write_table(pa.table(columns), tmp_path / "log.parquet")
    one, two = fresh(), fresh()
    first = logs.learn(one, tmp_path / "log.parquet", sample=40, most_passes=1)
    second = logs.learn(two, tmp_path / "log.parquet", sample=40, most_passes=3)
    assert first.passes == 1 < second.passes
    assert second.unexplained < 0.5 * first.unexplained
    assert (two.dictionary_points[:, 0] > 5.0).any()


def test_a_cap_holds(folder):
    policy = fresh(max_size=12)
    assert logs.learn(policy, folder).anchors == 12
    assert_same(policy, by_update_many(policy.dictionary_points))


def test_bad_rows_and_policies_are_named_and_change_nothing(folder, tmp_path):
    columns = table(100)
    columns["reward"][77] = np.nan
    parquet.write_table(pa.table(columns), tmp_path / "log.parquet")
    policy = fresh()
    with pytest.raises(kb.InputError, match=r"row 77: log\.parquet, row group 0, values"):
        logs.learn(policy, tmp_path / "log.parquet")
    assert policy.round_index == policy.dictionary_size == 0
    with pytest.raises(kb.InputError, match=r"history='none'"):
        logs.learn(kb.ek_ucb(KERNEL), folder)
    with pytest.raises(kb.InputError, match=r"history='none'"):
        logs.learn(kb.ek_ucb(), folder)
    features = kb.Features({"x": kb.Numeric()}, ["red", "blue"])
    named = kb.ek_ucb(KERNEL, dictionary=kb.Kors(history="none"), features=features, seed=0)
    with pytest.raises(kb.InputError, match="expected one over arrays"):
        logs.learn(named, folder)
    with pytest.raises(kb.InputError, match="expected one over arrays"):
        logs.learn(None, folder)
    with pytest.raises(kb.InputError, match="'price'"):
        logs.learn(policy, folder, action=["price"])
    with pytest.raises(kb.InputError, match="does not exist"):
        logs.learn(policy, tmp_path / "none")
    with pytest.raises(kb.InputError, match="expected a path or a Dask DataFrame"):
        logs.learn(policy, 3)
    policy.update([0.1, 0.2], [0.3], 1.0)
    with pytest.raises(kb.InputError, match="learned nothing yet"):
        logs.learn(policy, folder)


def kill_first(marker):
    """Kill the process whose number stands in the marker, once it does."""
    while not marker.exists():
        time.sleep(0.05)
    os.kill(int(marker.read_text()), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_killed_worker_changes_nothing(folder, monkeypatch, tmp_path):
    import dask.dataframe
    from distributed import Client, LocalCluster

    from kernel_bandits.logs.parts import part_sums

    marker = tmp_path / "marker"

    # defined here, so that it travels to the workers by value
    def late(part, basis, layout):
        if not marker.exists():
            draft = marker.with_suffix(f".{os.getpid()}")
            draft.write_text(str(os.getpid()))
            draft.replace(marker)
            time.sleep(30.0)
        return part_sums(part, basis, layout)

    alone = fresh()
    logs.learn(alone, folder)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        monkeypatch.setattr("kernel_bandits.logs.parts.part_sums", late)
        killer = threading.Thread(target=kill_first, args=(marker,))
        killer.start()
        shared = fresh()
        logs.learn(shared, folder, client=client)
        killer.join()
        assert_same(shared, alone, 0.0)
        monkeypatch.undo()
        frame = dask.dataframe.from_pandas(pd.DataFrame(table()), npartitions=3)
        framed = fresh()
        assert logs.learn(framed, frame, client=client).rows == ROWS
        assert_same(framed, by_update_many(framed.dictionary_points))


def test_a_dask_frame_needs_a_client():
    import dask.dataframe

    with pytest.raises(kb.InputError, match="client: expected the Dask client"):
        logs.learn(fresh(), dask.dataframe.from_pandas(pd.DataFrame(table(100)), npartitions=2))
