"""The service as a process: checks before it listens, one uvicorn server, an orderly shutdown."""

from __future__ import annotations

import socket
from collections.abc import Callable

import torch
import uvicorn

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.registry import Registry

from .config import ServeSettings
from .logs import LogFormat, configure_logs
from .main import create_app
from .protocol import BACKLOG, ConnectionLimits, bound_connections

GRACE = 10
"""Seconds that open requests get to finish."""


def serve(settings: ServeSettings, tell: Callable[[str], None], log_format: LogFormat = "text") -> None:
    """Serve until SIGINT or SIGTERM; `tell` is called with the address once the service listens."""
    configure_logs(log_format)
    # Decisions are computed with one thread each, since several may be computed at once.
    torch.set_num_threads(1)
    with Registry.open(settings.registry, create=False) as registry:
        check_keys(settings, registry)
        if settings.shadow is not None:
            registry.model(settings.shadow)  # an unknown one is refused now
        listener = listen(settings)
        config = uvicorn.Config(
            create_app(settings, registry),
            log_config=None,
            access_log=False,  # the middleware's lines have the request id
            server_header=False,
            # Behind a proxy keys tell callers apart; a caller must not be able to choose its own address.
            proxy_headers=False,
            timeout_graceful_shutdown=GRACE,
            lifespan="on",
            ws="none",
            http=bound_connections(ConnectionLimits.from_settings(settings)),
            backlog=BACKLOG,
        )
        host, port = listener.getsockname()[:2]
        tell(f"http://{f'[{host}]' if ':' in host else host}:{port}/api/v1")
        uvicorn.Server(config).run(sockets=[listener])


def check_keys(settings: ServeSettings, registry: Registry) -> None:
    """Refuse to listen on an address that other machines can reach unless the registry has an API key."""
    if not settings.loopback and not any(key.valid for key in registry.api_keys()):
        raise SettingsError(
            f"host: {settings.host} can be reached from other machines, and the registry has no API key: create one "
            "with `portfolio-sdpo keys create NAME`, or serve on 127.0.0.1."
        )


def listen(settings: ServeSettings) -> socket.socket:
    """Open the socket on which requests arrive."""
    try:
        family = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((settings.host, settings.port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise SettingsError(
            f"port: {settings.host}:{settings.port} is not available ({error.strerror}): choose another with --port."
        ) from None
