"""Save and resume: bit for bit, or refused with our error."""

import copy
import hashlib
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process import kernels as sk
from test_policy_contract import VARIANTS, build, rounds, variant_name

import kernel_bandits as kb
from kernel_bandits import persistence
from kernel_bandits.kernels import Shear


def play(policy, offers):
    decisions = []
    for context, actions, noise in offers:
        decision = policy.select(context, actions)
        policy.update(context, decision.action, float(np.sin(3 * decision.action[0]) + noise))
        decisions.append((decision.index, decision.mean, decision.std, decision.upper_bound))
    return decisions


@pytest.fixture
def saved(tmp_path):
    policy = kb.ek_ucb(kb.Gaussian(0.5), seed=0)
    play(policy, rounds(30))
    path = tmp_path / "policy.kb"
    policy.save(path)
    return path


@pytest.mark.parametrize("variant", VARIANTS, ids=variant_name)
def test_a_resumed_run_continues_bit_for_bit(variant, tmp_path):
    name, options = variant
    offers = list(rounds(120))
    for stop in np.random.default_rng(len(name)).integers(0, 100, 3):
        policy = build(name, **options)
        play(policy, offers[:stop])
        # between select and update too, but for what select computed for the update, which is rounded otherwise
        pending = policy.select(*offers[stop][:2])
        policy.save(tmp_path / "policy.kb")
        policy, resumed = copy.deepcopy(policy), kb.load(tmp_path / "policy.kb")
        for one in (policy, resumed):
            one.update(offers[stop][0], pending.action, 0.3)
        assert play(resumed, offers[stop + 1 :]) == play(policy, offers[stop + 1 :])


@pytest.mark.parametrize(
    "kernel",
    [
        kb.Matern(0.4, smoothness=2.5) + kb.Linear(),
        kb.TensorProduct(kb.Gaussian(0.3), kb.Exponential(0.5), context_dimension=2),
        kb.TensorProduct(kb.Gaussian(0.3), kb.Matern(0.5), 2, Shear(np.array([[0.2, -0.4]]), np.zeros(2))),
        2.0 * kb.Gaussian([0.3, 0.4, 0.5]),
        sk.RBF(0.5) + sk.WhiteKernel(0.1),
    ],
    ids=["sum", "tensor", "sheared", "scaled", "scikit-learn"],
)
def test_kernels_come_back_as_they_were(kernel, tmp_path):
    policy = kb.ek_ucb(kernel, seed=0)
    play(policy, rounds(20))
    policy.save(tmp_path / "policy.kb")
    assert play(kb.load(tmp_path / "policy.kb"), rounds(20, seed=1)) == play(policy, rounds(20, seed=1))


def test_a_kernel_of_scikit_learn_is_found_in_a_fresh_process(tmp_path):
    policy = kb.ek_ucb(sk.RBF(0.5), seed=0)
    play(policy, rounds(5))
    policy.save(tmp_path / "policy.kb")
    code = "import sys, kernel_bandits as kb; print(kb.load(sys.argv[1]).round_index)"
    finished = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "policy.kb"], capture_output=True, text=True, check=False
    )
    assert finished.stdout.strip() == "5", finished.stderr


def test_a_thousand_corrupted_files_are_refused(saved):
    intact = saved.read_bytes()
    generator = np.random.default_rng(0)
    for trial in range(1000):
        corrupted = bytearray(intact)
        if trial % 2:
            for bit in generator.integers(8 * len(intact), size=generator.integers(1, 4)):
                corrupted[bit // 8] ^= 1 << (bit % 8)
        else:
            del corrupted[generator.integers(len(intact)) :]
        if corrupted == intact:
            continue
        saved.write_bytes(corrupted)
        with pytest.raises(kb.InputError, match="load: "):
            kb.load(saved)


def rewrite(path, change):
    """A file whose manifest was changed by someone who knows how to checksum it."""
    content = path.read_bytes()[: -persistence.DIGEST_BYTES]
    start = len(persistence.MAGIC) + 12
    length = int.from_bytes(content[start - 8 : start], "big")
    manifest = json.loads(content[start : start + length])
    change(manifest)
    text = json.dumps(manifest).encode()
    body = content[: start - 8] + len(text).to_bytes(8, "big") + text + content[start + length :]
    path.write_bytes(body + hashlib.sha256(body).digest())


@pytest.mark.parametrize("name", ["os:system", "builtins:eval", "subprocess:Popen", "kernel_bandits.theory:nothing"])
def test_a_file_cannot_name_a_class_from_elsewhere(saved, name):
    rewrite(saved, lambda manifest: manifest["policy"].update(object=name))
    with pytest.raises(kb.InputError, match=r"not known here; apply kb\.register"):
        kb.load(saved)


@pytest.mark.parametrize(
    "change",
    [
        lambda manifest: manifest.update(policy=3),
        lambda manifest: manifest.update(policy={"number": 0, "mystery": 1}),
        lambda manifest: manifest.update(policy={"same": 7}),
        lambda manifest: manifest.update(policy={"number": 0, "list": []}),
        lambda manifest: manifest["arrays"][0].update(dtype="|O"),
        lambda manifest: manifest["arrays"][0].update(shape=[10**12]),
        lambda manifest: manifest["arrays"].pop(),
        lambda manifest: manifest.pop("policy"),
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused(saved, change):
    rewrite(saved, change)
    with pytest.raises(kb.InputError, match="load: "):
        kb.load(saved)


@given(st.binary(max_size=400))
@settings(max_examples=50, deadline=None)
def test_foreign_bytes_are_refused(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("foreign") / "policy.kb"
    path.write_bytes(content)
    with pytest.raises(kb.InputError, match="load: "):
        kb.load(path)
    path.write_bytes(persistence.MAGIC + content)
    with pytest.raises(kb.InputError, match="damaged or truncated"):
        kb.load(path)


def renumber(path, number, manifest=None):
    """An intact file of another format, perhaps with a manifest that we cannot read."""
    content = bytearray(path.read_bytes()[: -persistence.DIGEST_BYTES])
    start = len(persistence.MAGIC)
    content[start : start + 4] = number.to_bytes(4, "big")
    if manifest is not None:
        content[start + 4 :] = len(manifest).to_bytes(8, "big") + manifest
    path.write_bytes(content + hashlib.sha256(content).digest())


def test_a_newer_file_asks_for_an_upgrade(saved):
    renumber(saved, persistence.FORMAT + 1)
    with pytest.raises(kb.InputError, match="upgrade kernel-bandits"):
        kb.load(saved)


def test_an_older_file_names_its_release_and_the_way_out(saved):
    renumber(saved, persistence.FORMAT - 1)
    release = rf"written by kernel-bandits {kb.__version__} in format {persistence.FORMAT - 1}"
    with pytest.raises(
        kb.InputError, match=rf"{release}, .* format {persistence.FORMAT}; .*observed_points.*update_many"
    ):
        kb.load(saved)


@pytest.mark.parametrize("manifest", [b"", b"not JSON", b"[]", b"{}"])
def test_an_older_file_that_names_no_release_is_refused_too(saved, manifest):
    renumber(saved, persistence.FORMAT - 1, manifest)
    with pytest.raises(kb.InputError, match=r"another release of kernel-bandits in format"):
        kb.load(saved)


def test_paths_that_cannot_be_used(saved, tmp_path):
    with pytest.raises(kb.InputError, match="cannot read"):
        kb.load(tmp_path / "missing.kb")
    with pytest.raises(kb.InputError, match="cannot write"):
        kb.load(saved).save(tmp_path / "missing" / "policy.kb")
    assert sorted(tmp_path.iterdir()) == [saved]


class Halved(kb.Confidence):
    def __init__(self, number, note=None):
        self.number, self.note = number, note

    def radius(self, posterior):
        return self.number * posterior.regularization**0.5


def test_own_classes_are_saved_once_registered(tmp_path, monkeypatch):
    monkeypatch.setattr(persistence, "_registered", {})
    policy = kb.ek_ucb(kb.Gaussian(0.5), confidence=Halved(0.5), seed=0)
    path = tmp_path / "policy.kb"
    with pytest.raises(kb.InputError, match=r"policy\.confidence is .*Halved.*kb\.register"):
        policy.save(path)
    assert not list(tmp_path.iterdir())
    kb.register(Halved)
    policy.save(path)
    assert kb.load(path).confidence.number == 0.5
    persistence._registered.clear()
    with pytest.raises(kb.InputError, match="Halved"):
        kb.load(path)


def test_what_an_own_class_may_not_hold(tmp_path, monkeypatch):
    monkeypatch.setattr(persistence, "_registered", {})
    kb.register(Halved)
    for value in (np.array(["text"]), print, object()):
        policy = kb.ek_ucb(kb.Gaussian(0.5), confidence=Halved(0.5, value), seed=0)
        with pytest.raises(kb.InputError, match=r"save: policy\.confidence\.note"):
            policy.save(tmp_path / "policy.kb")


def test_numbers_of_every_kind_survive(tmp_path, monkeypatch):
    monkeypatch.setattr(persistence, "_registered", {})
    kb.register(Halved)
    shared = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    state = {"inf": float("inf"), 3: (1, -0.0, None), "shared": [shared, shared], b"key": True, "big": 2**200}
    policy = kb.ek_ucb(kb.Gaussian(0.5), confidence=Halved(0.5, state), seed=0)
    policy.save(tmp_path / "policy.kb")
    back = kb.load(tmp_path / "policy.kb").confidence.note
    assert list(back) == list(state)
    assert back["inf"] == float("inf")
    assert str(back[3]) == str(state[3])
    assert back[b"key"] is True
    assert back["big"] == 2**200
    assert back["shared"][0] is back["shared"][1]
    assert back["shared"][0].flags.f_contiguous
    np.testing.assert_array_equal(back["shared"][0], shared)


SAVE_FOREVER = """
import sys, itertools
import kernel_bandits as kb
policy = kb.ek_ucb(kb.Gaussian(0.05), seed=0)
kb.run(policy, kb.environments.Chessboard(), horizon=300, seed=0)
for number in itertools.count():
    policy.confidence = kb.StandardDeviations(float(number + 1))
    policy.save(sys.argv[1])
    print(number, flush=True)
"""


def test_a_kill_in_the_middle_of_saving_leaves_a_whole_file(tmp_path):
    path = tmp_path / "policy.kb"
    for delay in (0.0, 0.0013, 0.0031):
        process = subprocess.Popen([sys.executable, "-c", SAVE_FOREVER, path], stdout=subprocess.PIPE, text=True)
        for _ in range(5):
            last = int(process.stdout.readline())
        time.sleep(delay)
        os.kill(process.pid, signal.SIGKILL)
        rest = process.stdout.read().split()
        process.wait()
        process.stdout.close()
        last = int(rest[-1]) if rest else last
        # the last file that was reported, or the one whose report was cut off
        assert kb.load(path).confidence.number in (last + 1.0, last + 2.0)


def coins(policy, offers):
    return [policy.select(context, actions).index for context, actions, _ in offers]


@pytest.mark.parametrize("variant", VARIANTS, ids=variant_name)
def test_a_new_policy_that_is_reseeded_is_the_one_built_with_that_seed(variant):
    name, options = variant
    reseeded = build(name, **options)
    reseeded.reseed(5)
    offers = list(rounds(40))
    assert play(reseeded, offers) == play(build(name, **options, seed=5), offers)


def test_processes_that_load_one_file_need_not_explore_alike(tmp_path):
    policy = kb.ek_ucb(kb.Gaussian(0.5), exploration_floor=0.5, seed=0)
    play(policy, rounds(20))
    path = tmp_path / "policy.kb"
    policy.save(path)
    offers = list(rounds(60, seed=3))
    as_saved = coins(kb.load(path), offers)
    assert as_saved == coins(policy, offers)
    one, other = kb.load(path, seed=1), kb.load(path, seed=2)
    context, actions, _ = offers[0]
    np.testing.assert_array_equal(one.predict(context, actions).mean, other.predict(context, actions).mean)
    first, second = coins(one, offers), coins(other, offers)
    assert first == coins(kb.load(path, seed=1), offers)
    assert len({tuple(as_saved), tuple(first), tuple(second)}) == 3


def test_streams_of_fresh_entropy_differ(tmp_path):
    policy = kb.uniform(seed=0)
    policy.save(tmp_path / "policy.kb")
    drawn = []
    for _ in range(2):
        loaded = kb.load(tmp_path / "policy.kb")
        loaded.reseed(None)
        drawn.append(coins(loaded, list(rounds(40))))
    assert drawn[0] != drawn[1]


def test_a_table_policy_is_reseeded_too(tmp_path):
    policy = kb.TablePolicy(kb.uniform(seed=0), kb.Features({"x": kb.Numeric()}, ["a", "b", "c"]))
    policy.save(tmp_path / "policy.kb")
    drawn = [kb.load(tmp_path / "policy.kb", seed=seed).select({"x": 3.0}).index for seed in range(8)]
    assert len(set(drawn)) > 1


@pytest.mark.parametrize("seed", [-1, 0.5, "text", True])
def test_a_bad_seed_changes_nothing(tmp_path, seed):
    policy = kb.uniform(seed=0)
    policy.save(tmp_path / "policy.kb")
    with pytest.raises(kb.InputError, match="seed: expected a whole number"):
        kb.load(tmp_path / "policy.kb", seed=seed)
    with pytest.raises(kb.InputError, match="seed: expected a whole number"):
        policy.reseed(seed)
    assert coins(policy, rounds(20)) == coins(kb.load(tmp_path / "policy.kb"), rounds(20))
