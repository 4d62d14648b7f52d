"""Files that someone wrote who knows the format: refused, or a policy that plays; never a crash."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from crafting import craft, nodes, parts, write

import kernel_bandits as kb
from kernel_bandits.rng import restored

PRESETS = {
    "ek_ucb": lambda: kb.ek_ucb(kb.Gaussian(0.5), seed=0),
    "learned": lambda: kb.ek_ucb(kb.Gaussian(0.5), learn_kernel=True, seed=0),
    "k_ucb": lambda: kb.k_ucb(kb.Matern(0.5), seed=0),
    "cbbkb": lambda: kb.cbbkb(kb.Gaussian(0.5), seed=0),
    "lin_ucb": lambda: kb.lin_ucb(seed=0),
    "thompson": lambda: kb.thompson_sampling(kb.Gaussian(0.5), seed=0),
    "sup": lambda: kb.sup_kernel_ucb(kb.Gaussian(0.5), horizon=100, seed=0),
    "uniform": lambda: kb.uniform(seed=0),
}


def offers(count, seed):
    generator = np.random.default_rng(seed)
    for _ in range(count):
        yield generator.random(2), generator.random((5, 1)), float(generator.standard_normal())


def save_all(folder):
    """A file of each kind of policy, with pending decisions."""
    paths = []
    for name, build in PRESETS.items():
        policy = build()
        for context, actions, reward in offers(25, seed=0):
            policy.update(context, policy.select(context, actions).action, reward)
        for context, actions, _ in offers(3, seed=1):
            policy.ask(context, actions)
        paths.append(Path(folder, f"{name}.kb"))
        policy.save(paths[-1])
    return paths


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return {path.stem: path for path in save_all(tmp_path_factory.mktemp("saved"))}


def fate(path):
    """What becomes of a file: refused at once, or played with finite numbers, up to an error."""
    try:
        policy = kb.load(path)
    except kb.InputError:
        return "refused"
    try:
        for context, actions, reward in offers(10, seed=2):
            decision = policy.select(context, actions)
            assert np.isfinite([decision.mean, decision.std, decision.upper_bound]).all()
            assert decision.std >= 0
            policy.update(context, decision.action, reward)
            policy.tell(policy.ask(context, actions).id, reward)
    except AssertionError:
        raise
    except Exception:
        return "refused later"
    return "played"


def attack(folder, count, seed):
    """The fates of files that differ from good ones in one place."""
    paths = save_all(folder)
    generator = np.random.default_rng(seed)
    fates = Counter()
    for _ in range(count):
        intact = paths[generator.integers(len(paths))]
        done = craft(Path(folder, "crafted.kb"), intact, generator)
        Path(folder, "last").write_text(f"{intact.stem}: {done}")
        fates[fate(Path(folder, "crafted.kb"))] += 1
    return fates


def attack_in_a_process(folder, count, seed):
    """The same where a crash or an endless loop does no harm."""
    code = (
        "import json, sys, warnings; warnings.simplefilter('ignore')\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from test_crafted_files import attack\n"
        f"print(json.dumps(attack(sys.argv[1], {count}, {seed})))\n"
    )
    finished = subprocess.run(
        [sys.executable, "-c", code, folder], capture_output=True, text=True, timeout=600, check=False
    )
    assert finished.returncode == 0, ((folder / "last").read_text(), finished.returncode, finished.stderr)
    fates = json.loads(finished.stdout)
    assert fates["refused"] > count / 3
    assert fates.get("refused later", 0) < count / 20
    return fates


def test_sixty_crafted_files_are_refused_or_play(tmp_path):
    attack_in_a_process(tmp_path, 60, seed=0)


@pytest.mark.slow
def test_five_hundred_crafted_files_are_refused_or_play(tmp_path):
    attack_in_a_process(tmp_path, 500, seed=1)


def change(saved, tmp_path, name, edit):
    """A copy of a saved file with its manifest edited."""
    manifest, payload = parts(saved[name])
    edit(manifest)
    path = tmp_path / "crafted.kb"
    write(path, manifest, payload)
    return path


def entries(manifest, key):
    return [(one, key) for one, found in nodes(manifest) if found == key]


@pytest.mark.parametrize(
    ("kind", "place", "value"),
    [
        ("MT19937", "pos", -900_000_000),
        ("MT19937", "pos", 625),
        ("Philox", "buffer_pos", 10**6),
        ("Philox", "buffer_pos", -1),
        ("PCG64", "has_uint32", 7),
        ("PCG64", "uinteger", 2**32),
        ("PCG64", "uinteger", 0.5),
        ("PCG64", "uinteger", True),
    ],
)
def test_a_generator_in_an_impossible_state_is_refused(kind, place, value):
    generator = np.random.Generator(getattr(np.random, kind)(3))
    state = generator.bit_generator.state
    assert restored(state).random() == generator.random()
    (state["state"] if place == "pos" else state)[place] = value
    with pytest.raises(kb.InputError, match=place):
        restored(state)


def test_a_state_with_a_buffer_of_another_size_is_refused():
    for kind, place, wrong in (("MT19937", "key", np.zeros(3, np.uint32)), ("SFC64", "state", np.zeros(4, np.int64))):
        state = getattr(np.random, kind)(3).state
        state["state"][place] = wrong
        with pytest.raises(kb.InputError, match=place):
            restored(state)
    state = np.random.PCG64(3).state
    state["state"]["inc"] -= state["state"]["inc"] % 2
    with pytest.raises(kb.InputError, match="inc"):
        restored(state)
    with pytest.raises(kb.InputError, match="no policy has"):
        restored({"bit_generator": "SystemRandom"})


def test_a_file_with_a_generator_that_reads_elsewhere_is_refused(saved, tmp_path):
    def edit(manifest):
        (one, key), *_ = [(one, key) for one, key in nodes(manifest) if key == "generator" and "number" in one]
        key_and_place = [{"tuple": ["key", {"number": 9002, "array": 0}]}, {"tuple": ["pos", -900_000_000]}]
        state = {"number": 9001, "dict": key_and_place}
        kind = [{"tuple": ["bit_generator", "MT19937"]}, {"tuple": ["state", state]}]
        one[key] = [{"number": 9000, "dict": kind}, {"tuple": []}]

    with pytest.raises(kb.InputError, match="generator's state"):
        kb.load(change(saved, tmp_path, "ek_ucb", edit))


@pytest.mark.parametrize("name", ["k_ucb", "ek_ucb", "learned"])
def test_a_negative_regularization_is_refused(saved, tmp_path, name):
    def edit(manifest):
        for one, key in entries(manifest, "regularization"):
            if isinstance(one[key], (int, float)):
                one[key] = -0.1

    with pytest.raises(kb.InputError, match=r"load: .* holds a policy that cannot play a round"):
        kb.load(change(saved, tmp_path, name, edit))


@pytest.mark.parametrize("name", PRESETS)
def test_an_array_that_is_not_finite_is_refused(saved, tmp_path, name):
    manifest, payload = parts(saved[name])
    start = 0
    for described in manifest["arrays"]:
        size = int(np.prod(described["shape"])) * np.dtype(described["dtype"]).itemsize
        if described["dtype"] == "<f8" and size:
            spoiled = bytearray(payload)
            spoiled[start : start + 8] = np.float64(np.nan).tobytes()
            write(tmp_path / "crafted.kb", manifest, spoiled)
            with pytest.raises(kb.InputError, match="load: "):
                kb.load(tmp_path / "crafted.kb")
        start += size


@pytest.mark.parametrize("name", PRESETS)
def test_a_file_without_one_of_the_attributes_is_refused(saved, tmp_path, name):
    manifest, payload = parts(saved[name])
    refused = 0
    for one in [one for one, key in nodes(manifest) if key == "state" and "object" in one]:
        for attribute in list(one["state"]):
            whole = dict(one["state"])
            del one["state"][attribute]
            write(tmp_path / "crafted.kb", manifest, payload)
            with pytest.raises(kb.InputError, match="load: "):
                kb.load(tmp_path / "crafted.kb")
            one["state"] = whole
            refused += 1
    assert refused > 5


@pytest.mark.parametrize("attribute", ["posteriors", "select", "__class__", "__dict__", "not a name", "class"])
def test_names_that_are_no_plain_attributes_are_refused(saved, tmp_path, attribute):
    path = change(saved, tmp_path, "ek_ucb", lambda manifest: manifest["policy"]["state"].update({attribute: 1}))
    with pytest.raises(kb.InputError, match=r"UpperConfidenceBound has .*, which is not declared"):
        kb.load(path)


def test_the_setter_of_a_property_is_not_called(tmp_path, monkeypatch):
    from kernel_bandits import persistence

    monkeypatch.setattr(persistence, "_registered", {})
    called = []

    @kb.register
    class Radius(kb.Confidence):
        kept = property(lambda _: 1.0, lambda _, value: called.append(value))

        def radius(self, posterior):
            return posterior.regularization**0.5

    policy = kb.ek_ucb(kb.Gaussian(0.5), confidence=Radius(), seed=0)
    policy.save(tmp_path / "policy.kb")
    manifest, payload = parts(tmp_path / "policy.kb")
    manifest["policy"]["state"]["confidence"]["state"]["kept"] = 3
    write(tmp_path / "policy.kb", manifest, payload)
    with pytest.raises(kb.InputError, match="'kept'"):
        kb.load(tmp_path / "policy.kb")
    assert called == []


@pytest.mark.parametrize("deep", [b"[" * 100_000, b'{"policy":' * 50_000, b'{"tuple":[' * 400 + b"]}" * 400])
def test_deeply_nested_manifests_are_refused(saved, tmp_path, deep):
    path = tmp_path / "crafted.kb"
    _, payload = parts(saved["uniform"])
    for text in (deep, b'{"arrays": [], "policy": ' + deep + b"}"):
        write(path, text, payload)
        with pytest.raises(kb.InputError, match="load: "):
            kb.load(path)
