"""Promotions: which model is the champion, and why. The champion is the model of the last promotion."""

from __future__ import annotations

import getpass
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Final, Literal

import sqlalchemy as sa

from portfolio_sdpo.errors import ChampionChangedError, NotRegisteredError
from portfolio_sdpo.registry import schema
from portfolio_sdpo.registry.hash_chain import HashChain, LogCheck
from portfolio_sdpo.registry.records import Repository, Row, format_moment, require_text, utc_now

Kind = Literal["promote", "rollback", "withdraw"]
CHAIN = HashChain(schema.promotions)


class Anyone(Enum):
    """The type of `ANYONE`."""

    ANYONE = "anyone"


ANYONE: Final = Anyone.ANYONE
"""As the expected champion: any model, or none."""


@dataclass(frozen=True)
class Promotion:
    """One entry of the log."""

    seq: int
    kind: Kind
    model_id: str
    """The new champion, or the model that was withdrawn."""
    previous: str | None
    """The champion until then."""
    reason: str
    by: str
    at: datetime


class Promotions(Repository):
    """The champion and the log of promotions."""

    def champion(self) -> Promotion | None:
        """The promotion of the model that is champion now; None before the first and after a withdrawal."""
        last = self.last_promotion()
        return None if last is None or last.kind == "withdraw" else last

    def last_promotion(self) -> Promotion | None:
        """The last entry of the log, which may be a withdrawal."""
        with self.database.reading(still=True) as connection:
            row = CHAIN.last(connection)
        return None if row is None else self._promotion(row)

    def promotions(self) -> list[Promotion]:
        """The whole log, the newest first."""
        query = schema.promotions.select().order_by(schema.promotions.c.seq.desc())
        with self.database.reading() as connection:
            rows = connection.execute(query).mappings().all()
        return [self._promotion(row) for row in rows]

    def promote(
        self,
        model_id: str,
        reason: str,
        *,
        by: str | None = None,
        expected_champion: str | Anyone | None = ANYONE,
    ) -> Promotion:
        """Make the model champion, if the champion is the expected one (None: if there is none).

        Promoting the champion again changes nothing and adds no entry.
        """
        reason = require_text("reason", reason)
        with self.database.writing() as connection:
            head = CHAIN.lock(connection)
            last = CHAIN.last(connection)
            champion = _get_champion(last)
            _check_expected(champion, expected_champion)
            if last is not None and champion == model_id:
                return self._promotion(last)
            if not connection.execute(sa.select(schema.models.c.id).where(schema.models.c.id == model_id)).first():
                raise NotRegisteredError(
                    f"There is no model {model_id!r} to promote: `portfolio-sdpo models list` lists the models."
                )
            row = _make_row("promote", model_id, champion, reason, by)
            (seq,) = CHAIN.append(connection, head, [row])
        return self._promotion({**row, "seq": seq})

    def rollback(
        self, reason: str, *, by: str | None = None, expected_champion: str | Anyone | None = ANYONE
    ) -> Promotion:
        """Promote the champion before the current one; rolled back twice, the one before that.

        After a withdrawal, the champion that was withdrawn.
        """
        reason = require_text("reason", reason)
        with self.database.writing() as connection:
            head = CHAIN.lock(connection)
            last = CHAIN.last(connection)
            champion = _get_champion(last)
            _check_expected(champion, expected_champion)
            query = sa.select(schema.promotions.c.kind, schema.promotions.c.model_id)
            line: list[str | None] = []
            for kind, model_id in connection.execute(query.order_by(schema.promotions.c.seq)):
                line = line[:-1] if kind == "rollback" else [*line, None if kind == "withdraw" else model_id]
            earlier = line[-2] if len(line) > 1 else None
            if earlier is None:
                raise NotRegisteredError("There is no earlier champion to return to: promote another model.")
            row = _make_row("rollback", earlier, champion, reason, by)
            (seq,) = CHAIN.append(connection, head, [row])
        return self._promotion({**row, "seq": seq})

    def withdraw(
        self, reason: str, *, by: str | None = None, expected_champion: str | Anyone | None = ANYONE
    ) -> Promotion:
        """Leave the registry without a champion until a model is promoted by hand, or the withdrawal rolled back."""
        reason = require_text("reason", reason)
        with self.database.writing() as connection:
            head = CHAIN.lock(connection)
            champion = _get_champion(CHAIN.last(connection))
            _check_expected(champion, expected_champion)
            if champion is None:
                raise NotRegisteredError("There is no champion to withdraw: `portfolio-sdpo models list` lists models.")
            row = _make_row("withdraw", champion, champion, reason, by)
            (seq,) = CHAIN.append(connection, head, [row])
        return self._promotion({**row, "seq": seq})

    def verify_promotions(self) -> LogCheck:
        """Check that the log is as it was written; the result names the first altered row."""
        with self.database.reading(still=True) as connection:
            return CHAIN.verify(connection)

    def _promotion(self, row: Row) -> Promotion:
        return self._read(
            f"Promotion {row['seq']}",
            lambda: Promotion(
                seq=row["seq"],
                kind=row["kind"],
                model_id=row["model_id"],
                previous=row["previous"],
                reason=row["reason"],
                by=row["by"],
                at=datetime.fromisoformat(row["at"]),
            ),
        )


def _get_champion(last: Row | None) -> str | None:
    """The champion after the last entry of the log."""
    return None if last is None or last["kind"] == "withdraw" else last["model_id"]


def _make_row(kind: Kind, model_id: str, previous: str | None, reason: str, by: str | None) -> dict[str, Any]:
    return {
        "kind": kind,
        "model_id": model_id,
        "previous": previous,
        "reason": reason,
        "by": require_text("by", _get_user() if by is None else by),
        "at": format_moment(utc_now()),
    }


def _check_expected(champion: str | None, expected: str | Anyone | None) -> None:
    if expected is not ANYONE and champion != expected:
        raise ChampionChangedError(
            f"The champion is {champion or 'nobody'} and not {expected or 'nobody'} any more: check it and try again."
        )


def _get_user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container whose user has no name
        return "unknown"
