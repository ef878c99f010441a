"""Which hosts are this machine: addresses to listen on, and the names that requests carry."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping
from functools import lru_cache

from portfolio_sdpo.errors import SettingsError

FORWARDED = frozenset(
    {
        b"cf-connecting-ip",
        b"forwarded",
        b"true-client-ip",
        b"via",
        b"x-client-ip",
        b"x-cluster-client-ip",
        b"x-envoy-external-address",
        b"x-forwarded",
        b"x-forwarded-for",
        b"x-forwarded-host",
        b"x-forwarded-port",
        b"x-forwarded-proto",
        b"x-forwarded-scheme",
        b"x-forwarded-server",
        b"x-forwarded-ssl",
        b"x-original-forwarded-for",
        b"x-original-host",
        b"x-proxyuser-ip",
        b"x-real-ip",
        b"x-scheme",
    }
)
"""Headers by which a proxy says that it passes on the request of somebody else."""


def is_loopback(host: str) -> bool:
    """Whether every address of a host belongs to this machine only.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        found = {str(address[4][0]) for address in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        raise SettingsError(f"host: {host!r} is not an address of this machine; give one such as 127.0.0.1.") from None
    return bool(found) and all(ipaddress.ip_address(each.partition("%")[0]).is_loopback for each in found)


@lru_cache(maxsize=256)
def is_local_host(header: bytes) -> bool:
    """Whether a Host header names this machine by a loopback address or as localhost.

    >>> is_local_host(b"localhost:8501"), is_local_host(b"[::1]"), is_local_host(b"127.0.0.1.example.com")
    (True, True, False)
    """
    name = get_name(header)
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def get_name(header: bytes) -> str:
    """The name in a Host header, without the port.

    >>> get_name(b"[::1]:8501"), get_name(b"Example.com:80")
    ('::1', 'example.com')
    """
    host = header.decode("latin-1").lower()
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def get_origin_host(headers: Mapping[bytes, bytes]) -> bytes | None:
    """Host and port of the page that sent a request; None where no browser says so."""
    origin = headers.get(b"origin")
    return None if origin is None else origin.partition(b"://")[2]


def is_cross_site(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a browser reports that a page of another site than this machine sent the request."""
    origin = get_origin_host(headers)
    return headers.get(b"sec-fetch-site") == b"cross-site" or (origin is not None and not is_local_host(origin))


def is_local_request(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a request comes from this machine itself: from no proxy, and from no web page that resolves to it."""
    return is_local_host(headers.get(b"host", b"")) and not is_cross_site(headers) and FORWARDED.isdisjoint(headers)
