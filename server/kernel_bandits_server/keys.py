"""API keys: who may do what, compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from kernel_bandits.errors import InputError
from kernel_bandits_server.commands import RefusedError
from kernel_bandits_server.wording import sentence

VARIABLE = "KERNEL_BANDITS_KEYS"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class Key(Struct, frozen=True, forbid_unknown_fields=True):
    """One key: its roles, and its secret or ``sha256:`` and the digest of it."""

    roles: Annotated[list[Literal["decide", "reward", "read", "administer"]], Meta(min_length=1)]
    key: Annotated[str, Meta(min_length=16)]

    @property
    def digest(self) -> bytes:
        """The SHA-256 of the secret."""
        given = self.key.removeprefix("sha256:")
        return bytes.fromhex(given) if _DIGEST.fullmatch(self.key) else hashlib.sha256(self.key.encode()).digest()


class Keys:
    """All keys of a service; without any, everything is allowed, which is for loopback only.

    Args:
        keys: by name.
    """

    def __init__(self, keys: Mapping[str, Key] | None = None) -> None:
        keys = keys or {}
        self._roles = {name: frozenset(key.roles) for name, key in keys.items()}
        self._digests = [(name, key.digest) for name, key in keys.items()]

    def __bool__(self) -> bool:
        return bool(self._digests)

    def find(self, secret: str) -> str | None:
        """Return the name of the key with this secret; the time it takes does not depend on the secrets."""
        digest = hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()
        found = None
        for name, own in self._digests:
            if hmac.compare_digest(own, digest):
                found = name
        return found

    def require(self, role: str, headers: Mapping[str, str]) -> str:
        """Return the name of the caller's key; refuse a request without the role."""
        if not self:
            return "anyone"
        secret = _secret_of(headers)
        if secret is None:
            raise RefusedError(401, "no_key", "an API key is needed; send it as Authorization: Bearer KEY.")
        name = self.find(secret)
        if name is None:
            raise RefusedError(401, "wrong_key", "this API key is not known.")
        if not {role, "administer"} & self._roles[name]:
            raise RefusedError(403, "wrong_role", f"the key {name!r} lacks the role {role!r}.")
        return name

    def name_of(self, headers: Mapping[str, str]) -> str:
        """Return the name of the caller's key; empty if there is none."""
        return self.find(_secret_of(headers) or "") or ""


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
        entries = [one.strip().split(":", 2) for one in environment.get(VARIABLE, "").split(",") if one.strip()]
        tables: Any = {one[0]: {"roles": one[1].split("+"), "key": one[2]} for one in entries if len(one) == 3}
        if len(tables) < len(entries):
            raise InputError(f"keys: {VARIABLE}: expected NAME:role+role:SECRET for each key, and no name twice.")
    else:
        try:
            tables = tomllib.loads(Path(path).read_text(encoding="utf-8")).get("keys")
        except (OSError, ValueError) as reason:
            message = f"keys: {path} cannot be read ({reason}); expected TOML with tables [keys.NAME]."
            raise InputError(message) from reason
        if not isinstance(tables, dict) or not tables:
            raise InputError(f"keys: {path} holds no tables [keys.NAME].")
    return Keys({name: _key(name, table) for name, table in tables.items()})


def _key(name: str, table: Any) -> Key:
    try:
        return msgspec.convert(table, Key)
    except msgspec.ValidationError as reason:
        # without the value: it may be a secret
        words = sentence(reason, Key).removeprefix("the body: ")
        raise InputError(f"keys: {name}: {words}") from reason
