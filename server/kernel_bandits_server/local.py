"""Whether a request to a service without keys comes from this machine, and not from a web page of someone else.

A browser sends requests to 127.0.0.1 for any page that it shows. Such a page can post a decision or a reward (its
``Origin`` is another), and it can read the response too if the name of its own server comes to mean 127.0.0.1 (DNS
rebinding; the ``Host`` is that name).
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import Any

from kernel_bandits.tables.values import shown
from kernel_bandits_server.commands import RefusedError
from kernel_bandits_server.endpoint import Receive, Scope, Send, log_request, send_reply
from kernel_bandits_server.exchange import error_reply

_AUTHORITY = re.compile(r"(\[[0-9a-f:.]*\]|[a-z0-9.-]*)(?::[0-9]*)?")
# Bytes of headers whose answer is remembered.
LONGEST = 512
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}
_REMEDY = "Call it as localhost or 127.0.0.1, or give it API keys."


def is_loopback(host: str) -> bool:
    """Return whether a name or an address to bind to is this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class LocalOnly:
    """Refuses what does not name this machine, or comes from a page of another; for a service without keys.

    Args:
        app: takes the others, before any route is looked for: a redirect would name the host as well.
    """

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] == "http":
            headers = scope["headers"]
            hosts = tuple(value for name, value in headers if name == b"host")
            origins = tuple(value for name, value in headers if name == b"origin")
            # what is remembered is short
            known = _refusal if sum(map(len, hosts + origins)) <= LONGEST else _refusal.__wrapped__
            reason = known(hosts, origins, scope.get("http_version") == "1.0")
            if reason is not None:
                reply = error_reply(RefusedError(403, *reason))
                log_request("any", scope, reply, "", 0.0)
                await send_reply(receive, send, reply)
                return
        await self._app(scope, receive, send)


# most callers send the same few
@lru_cache(256)
def _refusal(hosts: tuple[bytes, ...], origins: tuple[bytes, ...], may_lack_host: bool) -> tuple[str, str] | None:
    """Return code and message for a request that is not local; None for one that is."""
    names = [host.decode("latin-1").strip().lower() for host in hosts]
    if not (may_lack_host or names) or not all(map(_is_local, names)):
        given = ", ".join(map(shown, names)) or "none"
        message = f"the header Host: without API keys the service is for this machine alone, got {given}. {_REMEDY}"
        return "foreign_host", message
    for origin in origins:
        page = origin.decode("latin-1").lower()
        scheme, _, authority = page.partition("://")
        port = _DEFAULT_PORTS.get(scheme)
        if port is None or authority.removesuffix(port) not in [name.removesuffix(port) for name in names]:
            message = (
                "the header Origin: without API keys the service takes requests from its own page and from programs, "
                f"got one from {shown(page)}; give it API keys, and call it from a server of yours."
            )
            return "foreign_origin", message
    return None


def _is_local(authority: str) -> bool:
    match = _AUTHORITY.fullmatch(authority)
    if match is None:
        return False
    host = match[1].removesuffix(".")
    if host.startswith("["):
        host = host[1:-1]
        # an address of version 4 stands without brackets
        return ":" in host and is_loopback(host)
    return host.endswith(".localhost") or is_loopback(host)
