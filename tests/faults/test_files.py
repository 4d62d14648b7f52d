"""Files: written whole or not at all, under attack, by threads, on a full or read-only disk, across kills."""

import os
import resource
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import kernel_bandits as kb
from kernel_bandits.io import atomic_write, remove_drafts

WRITER = """
import os, sys
from pathlib import Path
from kernel_bandits.io import atomic_write
with atomic_write(Path(sys.argv[1])) as file:
    file.write(b"half")
    file.flush()
    print("writing", flush=True)
    sys.stdin.read()
"""


def drafts(folder):
    return list(Path(folder).glob(".*.draft"))


def taught(seed=0):
    policy = kb.ek_ucb(kb.Gaussian(0.5), seed=seed)
    kb.run(policy, kb.environments.Chessboard(), horizon=30, seed=seed)
    return policy


def test_threads_that_save_one_path_leave_one_of_their_files(tmp_path):
    path = tmp_path / "policy.kb"
    policies = [taught(seed) for seed in range(4)]
    policies[0].save(path)
    errors, stop = [], threading.Event()

    def save(policy):
        try:
            for _ in range(50):
                policy.save(path)
        except BaseException as reason:
            errors.append(reason)

    def read():
        while not stop.is_set():
            try:
                kb.load(path)
            except BaseException as reason:
                errors.append(reason)

    reader = threading.Thread(target=read)
    writers = [threading.Thread(target=save, args=(policy,)) for policy in policies]
    for thread in (reader, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    reader.join()
    assert errors == []
    assert drafts(tmp_path) == []


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
def test_the_permissions_of_the_file_are_kept(tmp_path, mode):
    path = tmp_path / "file"
    path.write_bytes(b"before")
    path.chmod(mode)
    with atomic_write(path) as file:
        (draft,) = drafts(tmp_path)
        assert stat.S_IMODE(draft.stat().st_mode) == mode
        file.write(b"after")
    assert path.read_bytes() == b"after"
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_new_file_has_the_permissions_that_others_get(tmp_path):
    (tmp_path / "ordinary").write_bytes(b"")
    with atomic_write(tmp_path / "file"):
        pass
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "ordinary").stat().st_mode


@pytest.mark.parametrize("kind", ["link", "dangling link", "folder", "pipe", "device"])
def test_what_is_not_a_regular_file_is_refused_and_left_as_it_is(tmp_path, kind):
    path, other = tmp_path / "policy.kb", tmp_path / "other"
    other.write_bytes(b"untouched")
    if kind == "link":
        path.symlink_to(other)
    elif kind == "dangling link":
        path.symlink_to(tmp_path / "nowhere")
    elif kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path = Path("/dev/full")
    before = os.lstat(path)
    with pytest.raises(kb.InputError, match=r"save: cannot write .* which is not replaced\); choose another place"):
        kb.uniform(seed=0).save(path)
    assert (os.lstat(path).st_ino, os.lstat(path).st_mode) == (before.st_ino, before.st_mode)
    assert other.read_bytes() == b"untouched"
    assert drafts(tmp_path) == []


def test_a_draft_that_is_a_planted_link_is_not_followed(tmp_path, monkeypatch):
    victim = tmp_path / "victim"
    victim.write_bytes(b"untouched")
    tokens = iter(["0" * 16, "1" * 16])
    monkeypatch.setattr("secrets.token_hex", lambda _: next(tokens))
    (tmp_path / f".kernel-bandits-{'0' * 16}.draft").symlink_to(victim)
    with pytest.raises(FileExistsError), atomic_write(tmp_path / "file") as file:
        file.write(b"new")
    assert victim.read_bytes() == b"untouched"
    assert remove_drafts(tmp_path) == 0
    assert victim.exists()


def test_the_draft_of_a_killed_process_is_removed_and_that_of_a_living_one_is_not(tmp_path):
    processes = []
    for name in ("killed", "living"):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, tmp_path / name], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdout.readline() == b"writing\n"
        processes.append(process)
    assert len(drafts(tmp_path)) == 2
    assert remove_drafts(tmp_path) == 0
    processes[0].kill()
    processes[0].communicate()
    # neither the age of a draft nor the clock matters
    for draft in drafts(tmp_path):
        os.utime(draft, (0, 0))
    kb.uniform(seed=0).save(tmp_path / "policy.kb")
    assert len(drafts(tmp_path)) == 1
    processes[1].communicate()
    assert (tmp_path / "living").read_bytes() == b"half"
    assert not (tmp_path / "killed").exists()
    assert drafts(tmp_path) == []


def test_files_of_others_that_look_like_drafts_stay(tmp_path):
    for name in (".policy.kb.123.draft", ".kernel-bandits-0123.draft", "kernel-bandits-0123456789abcdef.draft"):
        (tmp_path / name).write_bytes(b"")
    assert remove_drafts(tmp_path) == 0
    assert len(list(tmp_path.iterdir())) == 3
    assert remove_drafts(tmp_path / "missing") == 0


@pytest.mark.parametrize("path", ["", "a\0b", b"policy.kb", 3, None])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(kb.InputError, match="save: expected the path of a file, got"):
        kb.uniform(seed=0).save(path)
    with pytest.raises(kb.InputError, match="load: expected the path of a file, got"):
        kb.load(path)


def test_a_name_too_long_and_a_folder_that_is_none(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / ("n" * 300), tmp_path / "file" / "policy.kb", tmp_path):
        with pytest.raises(kb.InputError, match="save: cannot write"):
            kb.uniform(seed=0).save(path)
    # the name of the draft does not lengthen that of the file
    kb.uniform(seed=0).save(tmp_path / ("n" * 255))


def test_a_disk_that_is_full_leaves_the_old_file(tmp_path):
    """A limit on the size of files fails writes as a full disk does, for any user."""
    path = tmp_path / "policy.kb"
    policy = taught()
    policy.save(path)
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        for limit in np.linspace(0, len(before) - 1, 20).astype(int):
            resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), limits[1]))
            with pytest.raises(kb.InputError, match=r"save: cannot write .*\(File too large\)"):
                policy.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == before
    assert drafts(tmp_path) == []
    policy.save(path)


FULL_DISK = """
import sys
from pathlib import Path
import kernel_bandits as kb
policy = kb.ek_ucb(kb.Gaussian(0.05), seed=0)
kb.run(policy, kb.environments.Chessboard(), horizon=200, seed=0)
folder = Path(sys.argv[1])
kb.uniform(seed=0).save(folder / "policy.kb")
before = (folder / "policy.kb").read_bytes()
with open(folder / "filler", "wb", buffering=0) as filler:
    try:
        while filler.write(bytes(4096)):
            pass
    except OSError:
        pass
try:
    policy.save(folder / "policy.kb")
except kb.InputError as reason:
    assert "No space left" in str(reason), reason
else:
    raise SystemExit("saved on a full disk")
assert (folder / "policy.kb").read_bytes() == before
assert not list(folder.glob(".*.draft"))
(folder / "filler").unlink()
print("refused, unharmed")
"""


def test_a_small_disk_that_fills_up(tmp_path):
    mount = f'mount -t tmpfs -o size=64k none {tmp_path} && exec "$@"'
    probe = subprocess.run(["unshare", "-rm", "sh", "-c", mount, "-", "true"], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip("this user may not mount a file system of its own")
    arguments = ["unshare", "-rm", "sh", "-c", mount, "-", sys.executable, "-c", FULL_DISK, str(tmp_path)]
    finished = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert finished.stdout.strip() == "refused, unharmed", finished.stderr


READ_ONLY = """
import os, sys
import kernel_bandits as kb
policy = kb.uniform(seed=0)
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    policy.save(sys.argv[1])
except kb.InputError as reason:
    print(reason)
"""


def test_a_folder_where_an_ordinary_user_may_not_write(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    for one in (tmp_path, *tmp_path.parents[:2]):
        one.chmod(0o755)
    folder.chmod(0o555)
    path = folder / "policy.kb"
    finished = subprocess.run([sys.executable, "-c", READ_ONLY, path], capture_output=True, text=True, check=False)
    assert finished.stdout.strip().endswith("(Permission denied); choose another place."), finished.stderr
    assert not list(folder.iterdir())


def save_and_kill(tmp_path, repetitions):
    """Kill a process that saves for ever, at random moments; the file is whole each time. Return the drafts left."""
    generator = np.random.default_rng(0)
    left = 0
    code = (
        "import sys, itertools, kernel_bandits as kb\n"
        "policy = kb.uniform(seed=0)\n"
        "for number in itertools.count():\n"
        "    policy.reseed(number)\n"
        "    policy.save(sys.argv[1])\n"
        "    if not number: print('saving', flush=True)\n"
    )
    for _ in range(repetitions):
        process = subprocess.Popen([sys.executable, "-c", code, tmp_path / "policy.kb"], stdout=subprocess.PIPE)
        process.stdout.readline()
        try:
            process.wait(generator.random() * 0.02)
        except subprocess.TimeoutExpired:
            process.kill()
        process.communicate()
        assert isinstance(kb.load(tmp_path / "policy.kb"), kb.Policy)
        left += len(drafts(tmp_path))
    kb.uniform(seed=0).save(tmp_path / "policy.kb")
    assert drafts(tmp_path) == []
    return left


def test_kills_while_saving_leave_a_whole_file(tmp_path):
    save_and_kill(tmp_path, 2)


@pytest.mark.slow
def test_two_hundred_kills_while_saving(tmp_path):
    assert save_and_kill(tmp_path, 200) > 0
