"""The service as a process: checks before it listens, one uvicorn, an orderly end."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable

import torch
import uvicorn

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.registry import Registry

from .application import create_app
from .settings import ServeSettings

GRACE = 10
"""Seconds that requests get to end."""


def serve(settings: ServeSettings, tell: Callable[[str], None], *, access_log: bool = False) -> None:
    """Serve until SIGINT or SIGTERM; `tell` gets the address once it listens."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("alembic").setLevel(logging.WARNING)
    # Decisions are made with one thread; here for good, since several may be made at once.
    torch.set_num_threads(1)
    with Registry.open(settings.registry) as registry:
        check_keys(settings, registry)
        listener = listen(settings)
        config = uvicorn.Config(
            create_app(settings, registry),
            log_config=None,
            access_log=access_log,
            server_header=False,
            # Behind a proxy the key tells callers apart; who asks must not be able to say from where.
            proxy_headers=False,
            timeout_graceful_shutdown=GRACE,
            lifespan="on",
            ws="none",
        )
        host, port = listener.getsockname()[:2]
        tell(f"http://{f'[{host}]' if ':' in host else host}:{port}/api/v1")
        uvicorn.Server(config).run(sockets=[listener])


def check_keys(settings: ServeSettings, registry: Registry) -> None:
    """Refuse to listen for others without a key in the registry."""
    if not settings.loopback and not any(key.revoked_at is None for key in registry.api_keys()):
        raise SettingsError(
            f"host: {settings.host} can be reached from other machines, and the registry has no API key: make one with "
            "`portfolio-sdpo keys create NAME`, or serve on 127.0.0.1."
        )


def listen(settings: ServeSettings) -> socket.socket:
    """The socket that requests come in by."""
    try:
        family = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    except OSError as error:
        raise SettingsError(
            f"port: {settings.host}:{settings.port} cannot be listened on ({error.strerror}): choose another port."
        ) from None
