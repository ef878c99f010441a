"""`portfolio-sdpo keys`: made once, listed without the secret, revoked for good."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from portfolio_sdpo.cli import build_app
from portfolio_sdpo.registry import Registry


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(tmp_path))
    monkeypatch.delenv("PORTFOLIO_SDPO_REGISTRY", raising=False)


def run(*arguments: str):
    return CliRunner().invoke(build_app(), ["keys", *arguments])


def test_keys_from_making_to_revoking():
    assert "no key yet" in run("list").stdout
    made = run("create", "nightly", "--scope", "train")
    secret = made.stdout.strip()
    with Registry.open() as registry:
        key = registry.check_key(secret)
        assert key is not None and (key.name, key.scope) == ("nightly", "train")
    reader = json.loads(run("create", "desk", "--json").stdout)
    assert reader["scope"] == "read"
    listed = run("list").stdout
    assert key.id in listed and "nightly" in listed and secret not in listed
    assert run("revoke", key.id).exit_code == 0
    with Registry.open() as registry:
        assert registry.check_key(secret) is None
    records = {each["name"]: each for each in json.loads(run("list", "--json").stdout)["keys"]}
    assert records["nightly"]["revoked_at"] and records["desk"]["revoked_at"] is None
    assert run("revoke", key.id).exit_code == 1
    assert run("create", "x", "--scope", "write").exit_code == 2
