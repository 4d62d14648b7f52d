"""API keys: who may do what, compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kernel_bandits.errors import InputError
from kernel_bandits_server.commands import RefusedError

ROLES = ("decide", "reward", "read", "administer")
VARIABLE = "KERNEL_BANDITS_KEYS"
SHORTEST = 16
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Key:
    """One key: its name in logs, its roles, and the SHA-256 of its secret."""

    name: str
    roles: frozenset[str]
    digest: bytes


class Keys:
    """All keys of a service; without any, everything is allowed, which is for loopback only.

    Args:
        keys: the keys.
    """

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        self._keys = tuple(keys)
        names = [key.name for key in self._keys]
        if len(set(names)) < len(names):
            raise InputError("keys: two keys have the same name; give each its own.")

    def __bool__(self) -> bool:
        return bool(self._keys)

    def find(self, secret: str) -> Key | None:
        """Return the key with this secret; the time it takes does not depend on the secrets."""
        digest = hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()
        found = None
        for key in self._keys:
            if hmac.compare_digest(key.digest, digest):
                found = key
        return found

    def require(self, role: str, headers: Mapping[str, str]) -> str:
        """Return the name of the caller's key; refuse a request without the role."""
        if not self._keys:
            return "anyone"
        secret = _secret_of(headers)
        if secret is None:
            raise RefusedError(401, "no_key", "an API key is needed; send it as Authorization: Bearer KEY.")
        key = self.find(secret)
        if key is None:
            raise RefusedError(401, "wrong_key", "this API key is not known.")
        if role not in key.roles and "administer" not in key.roles:
            raise RefusedError(403, "wrong_role", f"the key {key.name!r} lacks the role {role!r}.")
        return key.name

    def name_of(self, headers: Mapping[str, str]) -> str:
        """Return the name of the caller's key; empty if there is none."""
        key = self.find(_secret_of(headers) or "")
        return "" if key is None else key.name


def _secret_of(headers: Mapping[str, str]) -> str | None:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    return headers.get("x-api-key") or None


def read_keys(path: str | Path | None = None, environment: Mapping[str, str] = os.environ) -> Keys:
    """Return the keys of a TOML file, or else those of the environment variable ``KERNEL_BANDITS_KEYS``.

    In the file each key is a table ``[keys.NAME]`` with ``roles`` and ``key`` (the secret, or ``sha256:`` and its
    digest). In the variable keys are separated by commas: ``NAME:role+role:SECRET``.
    """
    if path is None:
        entries = [entry for entry in environment.get(VARIABLE, "").split(",") if entry.strip()]
        return Keys(_from_text(entry.strip()) for entry in entries)
    try:
        tables = tomllib.loads(Path(path).read_text(encoding="utf-8")).get("keys", {})
    except (OSError, ValueError) as reason:
        raise InputError(f"keys: {path} cannot be read ({reason}); expected TOML with tables [keys.NAME].") from reason
    if not isinstance(tables, dict) or not tables:
        raise InputError(f"keys: {path} holds no tables [keys.NAME].")
    keys = []
    for name, table in tables.items():
        if not isinstance(table, dict) or set(table) != {"roles", "key"}:
            raise InputError(f'keys: [keys.{name}]: expected roles = [...] and key = "...".')
        keys.append(_key(name, table["roles"], table["key"]))
    return Keys(keys)


def _from_text(entry: str) -> Key:
    name, _, rest = entry.partition(":")
    roles, _, secret = rest.partition(":")
    return _key(name, roles.split("+"), secret)


def _key(name: str, roles: object, secret: object) -> Key:
    if not isinstance(roles, list) or not roles or any(role not in ROLES for role in roles):
        raise InputError(f"keys: {name}: expected roles among {', '.join(ROLES)}, got {roles!r}.")
    if not isinstance(secret, str) or len(secret) < SHORTEST:
        raise InputError(f"keys: {name}: expected a secret of at least {SHORTEST} characters.")
    if _DIGEST.fullmatch(secret):
        digest = bytes.fromhex(secret.removeprefix("sha256:"))
    else:
        digest = hashlib.sha256(secret.encode()).digest()
    return Key(name, frozenset(roles), digest)
