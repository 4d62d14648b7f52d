"""Who may call: those with an API key and its roles; without keys, programs and the own page of this machine."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec
from litestar.datastructures import Headers
from litestar.middleware import ASGIMiddleware
from litestar.types import ASGIApp, Receive, Scope, Send
from msgspec import Meta, Struct

from kernel_bandits.errors import InputError
from kernel_bandits.tables.values import shown
from kernel_bandits_server.planning import RefusedError
from kernel_bandits_server.wording import sentence

VARIABLE = "KERNEL_BANDITS_KEYS"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_PORTS = {"http": 80, "https": 443}


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
    """All keys of a service; without any, everything is allowed to those who call from this machine.

    Args:
        keys: by name.
    """

    def __init__(self, keys: Mapping[str, Key] | None = None) -> None:
        self._keys = {name: (key.digest, frozenset(key.roles)) for name, key in (keys or {}).items()}

    def __bool__(self) -> bool:
        return bool(self._keys)

    def name_of(self, headers: Mapping[str, str]) -> str:
        """Return the name of the caller's key, each compared in constant time; empty if there is none."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        secret = token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
        digest = hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()
        return [*(name for name, (own, _) in self._keys.items() if hmac.compare_digest(own, digest)), ""][0]

    def require(self, role: str, headers: Mapping[str, str]) -> None:
        """Refuse a caller whose key lacks a role."""
        name = self.name_of(headers)
        if not name and not {"authorization", "x-api-key"} & set(headers):
            raise RefusedError(401, "no_key", "an API key is needed; send it as Authorization: Bearer KEY.")
        if not name:
            raise RefusedError(401, "wrong_key", "this API key is not known; send it as Authorization: Bearer KEY.")
        if not {role, "administer"} & self._keys[name][1]:
            raise RefusedError(403, "wrong_role", f"the key {name!r} lacks the role {role!r}.")


class Gate(ASGIMiddleware):
    """Lets those in who may make a request.

    A browser sends requests to 127.0.0.1 for any page that it shows. Such a page can post a decision or a reward (its
    ``Origin`` is another), and it can read the response too if the name of its own server comes to mean 127.0.0.1 (DNS
    rebinding; the ``Host`` is that name).

    Args:
        keys: that callers need.
    """

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    async def handle(self, scope: Scope, receive: Receive, send: Send, next_app: ASGIApp) -> None:
        """Handle a request."""
        role, headers = scope["route_handler"].opt.get("role"), Headers.from_scope(scope)
        if not self._keys:
            _require_local(headers.getall("host", []), headers.getall("origin", []))
        elif role is not None:
            self._keys.require(role, headers)
        await next_app(scope, receive, send)


def _require_local(hosts: Sequence[str], origins: Sequence[str]) -> None:
    if not hosts or not all(is_loopback(_place(f"http://{host}")[0]) for host in hosts):
        raise RefusedError(
            403,
            "foreign_host",
            f"the header Host: without API keys the service is for this machine alone, got "
            f"{', '.join(map(shown, hosts)) or 'none'}. Call it as localhost or 127.0.0.1, or give it API keys.",
        )
    for origin in origins:
        scheme = origin.partition("://")[0]
        if scheme not in _PORTS or _place(origin) not in [_place(f"{scheme}://{host}") for host in hosts]:
            raise RefusedError(
                403,
                "foreign_origin",
                "the header Origin: without API keys the service takes requests from its own page and programs, got "
                f"one from {shown(origin)}; give it API keys, and call it from a server of yours.",
            )


def _place(address: str) -> tuple[str, int | None]:
    """Return the host and the port of an address; nothing where it has none."""
    try:
        parts = urlsplit(address)
        return parts.hostname or "", parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return "", None


def is_loopback(host: str) -> bool:
    """Return whether a name or an address is that of this machine alone."""
    host = host.removesuffix(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


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
    try:
        return Keys(msgspec.convert(tables, dict[str, Key]))
    except msgspec.ValidationError as reason:
        # without the value: it may be a secret
        raise InputError(f"keys: {sentence(reason, dict[str, Key]).removeprefix('the body: ')}") from reason
