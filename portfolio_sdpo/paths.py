"""Where the tool keeps what it makes or downloads: never in the repository."""

import os
from pathlib import Path

from platformdirs import user_data_path


def home() -> Path:
    """The user's data directory; the variable `PORTFOLIO_SDPO_HOME` overrides the platform's default."""
    override = os.environ.get("PORTFOLIO_SDPO_HOME")
    return Path(override).expanduser() if override else user_data_path("portfolio_sdpo", appauthor=False)
