"""Files with a valid checksum and a manifest or arrays that no policy wrote."""

import hashlib
import json

import numpy as np

from kernel_bandits import persistence

ODD_VALUES = (
    None,
    True,
    0,
    -1,
    7,
    10**30,
    0.5,
    -2.5,
    1e308,
    "text",
    {"float": "nan"},
    {"float": "inf"},
    {"tuple": []},
    {"same": 0},
    {"same": 3},
    {"number": 9999, "list": []},
    {"number": 9999, "array": 0},
    {"number": 9999, "dict": []},
    {"bytes": "00ff"},
)


def parts(path):
    """The manifest of a file and the bytes of its arrays."""
    content = path.read_bytes()[: -persistence.DIGEST_BYTES]
    start = len(persistence.MAGIC) + 12
    length = int.from_bytes(content[start - 8 : start], "big")
    return json.loads(content[start : start + length]), content[start + length :]


def write(path, manifest, payload):
    """Write both as a file whose checksum is right; a manifest may be given as its text."""
    text = manifest if isinstance(manifest, bytes) else json.dumps(manifest).encode()
    head = persistence.MAGIC + persistence.FORMAT.to_bytes(4, "big") + len(text).to_bytes(8, "big")
    body = head + text + bytes(payload)
    path.write_bytes(body + hashlib.sha256(body).digest())


def nodes(tree):
    """Yield every (container, key) of a tree of JSON."""
    entries = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in list(entries):
        yield tree, key
        if isinstance(value, (dict, list)):
            yield from nodes(value)


def craft(path, intact, generator):
    """Write a file that differs from an intact one in one place, and return what was done."""
    manifest, payload = parts(intact)
    payload = bytearray(payload)
    states = [one[key] for one, key in nodes(manifest) if key == "state" and isinstance(one.get("object"), str)]
    kind = ("drop", "replace", "replace", "negate", "array", "describe", "swap", "rename")[generator.integers(8)]
    done = kind
    if kind == "drop":
        state = states[generator.integers(len(states))]
        if state:
            name = list(state)[generator.integers(len(state))]
            del state[name]
            done = f"drop {name}"
    elif kind == "replace":
        everywhere = list(nodes(manifest["policy"]))
        container, key = everywhere[generator.integers(len(everywhere))]
        container[key] = ODD_VALUES[generator.integers(len(ODD_VALUES))]
        done = f"{key} = {container[key]}"
    elif kind == "negate":
        numbers = [(one, key) for one, key in nodes(manifest["policy"]) if type(one[key]) in (int, float)]
        container, key = numbers[generator.integers(len(numbers))]
        container[key] = -container[key] or -1
        done = f"{key} = {container[key]}"
    elif kind == "array" and len(payload) >= 8:
        place = 8 * int(generator.integers(len(payload) // 8))
        value = (np.nan, np.inf, -1e300, 1e-320)[generator.integers(4)]
        payload[place : place + 8] = np.float64(value).tobytes()
        done = f"{value} in an array"
    elif kind == "describe":
        described = manifest["arrays"][generator.integers(len(manifest["arrays"]))]
        key, value = [("dtype", "<i8"), ("dtype", ">f8"), ("shape", described["shape"][::-1]), ("order", "F")][
            generator.integers(4)
        ]
        described[key] = value
        done = f"an array with {key} {value}"
    elif kind == "swap":
        arrays = [one for one, key in nodes(manifest["policy"]) if key == "array"]
        if len(arrays) > 1:
            one, other = (arrays[place] for place in generator.choice(len(arrays), 2, replace=False))
            one["array"], other["array"] = other["array"], one["array"]
            done = "two arrays swapped"
    elif kind == "rename":
        objects = [one for one, key in nodes(manifest) if key == "object"]
        one, other = (objects[place] for place in generator.integers(len(objects), size=2))
        one["object"] = other["object"]
        done = f"another {one['object']}"
    write(path, manifest, payload)
    return done
