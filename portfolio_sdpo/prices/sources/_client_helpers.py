"""What the two network clients share: third-party settings that are global, and servers on this machine."""

from __future__ import annotations

import ipaddress
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit


@contextmanager
def override_attributes(owner: Any, **values: Any) -> Iterator[None]:
    """Set attributes of a module, class or object and put the old ones back."""
    # From its own namespace if it is there: a class method comes back as one.
    before = {name: vars(owner).get(name, getattr(owner, name)) for name in values}
    try:
        for name, value in values.items():
            setattr(owner, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


@contextmanager
def ignore_deprecations() -> Iterator[None]:
    """Keep a client's warnings about itself (it calls pandas in ways of the past) from our users."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        yield


def is_loopback(url: str) -> bool:
    """Whether the address is on this machine, so that no proxy may stand in between.

    >>> is_loopback("http://127.0.0.1:8000/api"), is_loopback("https://example.com")
    (True, False)
    """
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
