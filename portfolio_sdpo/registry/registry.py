"""The registry: one object on one database for models, promotions, runs, audit, jobs and keys."""

from __future__ import annotations

from typing import Self

from portfolio_sdpo.registry.archive import Archives
from portfolio_sdpo.registry.audit import Audit
from portfolio_sdpo.registry.database import TIMEOUT, Database, Identity, resolve_url
from portfolio_sdpo.registry.jobs import Jobs
from portfolio_sdpo.registry.keys import Keys
from portfolio_sdpo.registry.models import Models
from portfolio_sdpo.registry.promotions import Promotions
from portfolio_sdpo.registry.runs import Runs
from portfolio_sdpo.registry.witness import compare_with_note, note_heads


class Registry(Models, Promotions, Runs, Audit, Archives, Jobs, Keys):
    """Models, champion, runs, audit and its archives, jobs and keys; safe to share between threads, one per process.

    with Registry.open() as registry:
        agent = registry.load_agent(registry.champion().model_id)
    """

    @classmethod
    def open(cls, url: str | None = None, *, timeout: float = TIMEOUT, create: bool = True) -> Self:
        """The registry at a URL or path, by default where `PORTFOLIO_SDPO_REGISTRY` says or in the data directory.

        A registry that does not exist yet is created, unless `create` is false, and the tables of an older version are
        upgraded. `timeout`: seconds to wait for locks.
        """
        database = Database(resolve_url(url), timeout, compare_with_note)
        try:
            database.open(create=create)
        except BaseException:
            database.close()
            raise
        return cls(database)

    @property
    def place(self) -> str:
        """The file or the URL, without a password."""
        return self.database.place

    def look(self) -> Identity:
        """The identity of the registry as it is now; a `RegistryReplacedError` if it is not the one that was opened."""
        return self.database.look()

    def note_heads(self, identity: Identity) -> str | None:
        """Note how far the logs have come, beside an SQLite registry or else in memory.

        Returns what contradicts the last note.
        """
        return note_heads(self.database, identity)

    def close(self) -> None:
        """Close all connections."""
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
