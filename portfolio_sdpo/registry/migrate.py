"""Upgrades the tables to the newest revision: whenever a registry is opened, in one transaction."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

from portfolio_sdpo.errors import RegistryError
from portfolio_sdpo.registry.schema import HEAD, VERSION_TABLE

MIGRATIONS = Path(__file__).parent / "migrations"


def read_revision(connection: sa.Connection) -> str | None:
    """The revision of the tables; None if there are none yet."""
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.execute(sa.text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()


def migrate(connection: sa.Connection) -> None:
    """Upgrade within the connection's transaction, which must exclude other writers."""
    found = read_revision(connection)
    if found == HEAD:  # another process was faster
        return
    # Only here: Alembic takes longer to import than the registry to open.
    from alembic.config import Config
    from alembic.operations import Operations
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    config = Config()
    # A % would be taken for a reference to another option.
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    scripts = ScriptDirectory.from_config(config)
    if found is not None and found not in {script.revision for script in scripts.walk_revisions()}:
        raise RegistryError(
            f"The registry has tables of revision {found}, newer than the {HEAD} that this version of portfolio_sdpo "
            "knows: upgrade portfolio_sdpo."
        )
    context = MigrationContext.configure(
        connection,
        opts={
            "version_table": VERSION_TABLE,
            "transactional_ddl": True,
            "fn": lambda revision, _: scripts._upgrade_revs(HEAD, revision),
        },
    )
    with Operations.context(context):
        context.run_migrations()
