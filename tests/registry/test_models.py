"""Models go in once and come out to the last bit; a flipped byte anywhere is an error and never another answer."""

import json
import random
import shutil
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import date

import numpy as np
import pytest

from portfolio_sdpo.errors import (
    CheckpointError,
    ModelCorruptError,
    NotRegisteredError,
    PortfolioSdpoError,
    RegistryError,
    RunError,
    SettingsError,
)
from portfolio_sdpo.portfolio.market import load_latest
from portfolio_sdpo.portfolio.store import load_agent
from portfolio_sdpo.registry import Registry, models


def test_what_is_known_of_a_model(registry, folder):
    config = json.loads((folder / "config.json").read_text())
    model = registry.add_model(folder, metrics={"sharpe": 1.5}, label="nightly")
    assert model.id == f"{config['created_at'][:10].replace('-', '')}-{model.content_hash[:8]}"
    assert model.as_of == date(2021, 10, 14) and model.data_hash == config["data"]["sha256"]
    assert (model.label, model.parent, model.metrics) == ("nightly", None, {"sharpe": 1.5})
    assert model.settings == config["settings"] and model.assets[0] == "CASH"
    assert registry.model(model.id) == model and registry.models() == [model]
    assert registry.models(data_hash=model.data_hash) == [model] and registry.models(data_hash="0") == []
    child = registry.add_parts({**registry.model_parts(model.id), "config.json": json.dumps(config).encode()})
    assert child.parent is None and child.id != model.id


def test_it_comes_back_to_the_last_bit(registry, folder, parts):
    model = registry.add_model(folder)
    assert registry.model_parts(model.id) == parts
    market, _ = load_latest(None, "zero")
    cash = np.eye(len(market.assets))[0]
    one, two = registry.load_agent(model.id), load_agent(folder)
    assert (one.settings, one.seed, one.name, one.trace) == (two.settings, two.seed, two.name, two.trace)
    assert (one.decide(market, cash) == two.decide(market, cash)).all()
    states = [agent.learner.state_dict() for agent in (one, two)]
    assert all((states[0][name] == states[1][name]).all() for name in states[1])


def test_the_same_content_is_the_same_model(registry, url, folder, parts):
    first = registry.add_model(folder, metrics={"a": 1})
    assert registry.add_parts(parts, label="other", metrics={"a": 2}) == first
    with Registry.open(url) as again:
        assert again.add_model(folder) == first
    assert registry.model_ids() == [first.id]


def test_two_add_the_same_at_once(url, parts, variant):
    """Each with connections of its own; threads, because torch takes long to import in new processes."""
    with Registry.open(url) as one, Registry.open(url) as two, ThreadPoolExecutor(2) as pool:
        for number in range(5):
            content = variant(f"m{number}")
            gate = threading.Barrier(2)

            def add(registry, content=content, gate=gate):
                gate.wait()
                return registry.add_parts(content)

            first, second = pool.map(add, (one, two))
            assert first == second and len(one.model_ids()) == number + 1


def test_names_that_would_be_shared_get_longer(registry, variant, monkeypatch):
    monkeypatch.setattr(models, "DIGITS", 0)
    one, two = (registry.add_parts(variant(label)) for label in "ab")
    assert one.id.endswith("-") and two.id == f"{one.id}{two.content_hash[:4]}"
    assert registry.add_parts(variant("b")) == two


def test_parent_and_metrics(registry, ids, variant):
    model = registry.add_parts(variant("child"), parent=ids[0])
    assert registry.model(model.id).parent == ids[0]
    judged = registry.set_metrics(model.id, {"sharpe": {"value": 0.1 + 0.2}})
    assert registry.model(model.id) == judged and judged.metrics == {"sharpe": {"value": 0.1 + 0.2}}
    with pytest.raises(NotRegisteredError, match="There is no model 'nobody'"):
        registry.add_parts(variant("orphan"), parent="nobody")
    with pytest.raises(NotRegisteredError):
        registry.set_metrics("nobody", {})
    with pytest.raises(SettingsError, match="metrics: must be plain JSON without NaN"):
        registry.set_metrics(model.id, {"sharpe": float("nan")})


def test_ids_by_their_beginning(registry, ids):
    assert registry.resolve_id(ids[1]) == ids[1]
    digits = next(n for n in range(9, 20) if len({name[:n] for name in ids}) == 3)
    assert [registry.resolve_id(name[: digits + 1]) for name in ids] == ids
    with pytest.raises(NotRegisteredError, match=r"can be 2.*: give more of the id\."):
        registry.resolve_id(ids[0][:4])
    for wrong in ("", "x", "%", "_"):
        with pytest.raises(NotRegisteredError, match="There is no model"):
            registry.resolve_id(wrong)


def test_what_is_no_agent_is_not_registered(registry, parts, variant, tmp_path):
    with pytest.raises(RunError, match=r"holds no config\.json"):
        registry.add_model(tmp_path)
    with pytest.raises(CheckpointError, match="is corrupt"):
        registry.add_parts(parts | {"policy.safetensors": parts["policy.safetensors"][:-1]})
    with pytest.raises(SettingsError, match=r"parts: a model has config\.json"):
        registry.add_parts(parts | {"evil.pkl": b""})
    with pytest.raises(RunError, match=r"config\.json does not describe an agent"):
        registry.add_parts(variant("x", created_at="yesterday"))
    before = {name: value for name, value in json.loads(parts["config.json"])["settings"].items() if name != "limits"}
    with pytest.raises(SettingsError, match=r"max_weight: this policy holds at most 0\.3 .* fit and save it again"):
        registry.add_parts(variant("x", allocator={"max_weight": 0.3}, settings=before))
    with pytest.raises(SettingsError, match="label: must not be empty"):
        registry.add_parts(parts, label=" ")
    with pytest.raises(SettingsError, match="label: must be plain text without NUL"):
        registry.add_parts(parts, label="a\0b")
    assert registry.model_ids() == []


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE model_parts SET sha256 = 'f' WHERE name = 'config.json'",
        "DELETE FROM model_parts WHERE name = 'metrics.parquet'",
        "UPDATE model_parts SET name = 'other' WHERE name = 'config.json'",
        "UPDATE models SET content_hash = 'f'",
        "UPDATE models SET label = 'another'",
        "UPDATE models SET as_of = '2021-10-15'",
        "UPDATE models SET metrics = '{}'",
        "UPDATE models SET config = replace(config, '\"seed\":3', '\"seed\":4')",
        "UPDATE models SET record_hash = 'f'",
    ],
)
def test_whatever_is_changed_is_found(registry, folder, alter, damage):
    model = registry.add_model(folder)
    assert registry.damaged_models() == {}
    alter(damage)
    with pytest.raises(ModelCorruptError, match=f"Model {model.id} is damaged"):
        registry.load_agent(model.id)
    assert list(registry.damaged_models()) == [model.id]


def test_a_flipped_byte_in_a_part_is_found_and_can_be_mended(registry, folder, parts):
    import sqlalchemy as sa

    from portfolio_sdpo.registry.schema import parts as table

    model = registry.add_model(folder)
    rng = random.Random(0)
    for name, content in parts.items():
        for place in rng.sample(range(len(content)), 5):
            flipped = bytearray(content)
            flipped[place] ^= 1 << rng.randrange(8)
            with registry.database.writing() as connection:
                connection.execute(sa.update(table).where(table.c.name == name).values(content=bytes(flipped)))
            with pytest.raises(ModelCorruptError, match=f"{name} does not match its hash.*models add"):
                registry.load_agent(model.id)
            assert registry.add_model(folder) == model
            assert registry.model_parts(model.id) == parts


def test_one_damaged_model_does_not_hide_the_others(registry, ids, alter):
    alter(f"UPDATE models SET label = 'x' WHERE id = '{ids[1]}'")
    assert {model.id for model in registry.models()} == {ids[0], ids[2]}
    assert set(registry.model_ids()) == set(ids) and list(registry.damaged_models()) == [ids[1]]


def test_sound_bytes_of_another_version_are_told(registry, folder, monkeypatch):
    model = registry.add_model(folder)
    monkeypatch.setattr("portfolio_sdpo.common.files.FORMAT", 2)
    with pytest.raises(RegistryError, match="cannot be loaded by this version"):
        registry.load_agent(model.id)


def test_nothing_is_unpickled(registry, folder, monkeypatch):
    import pickle

    import torch

    def refuse(*arguments, **options):
        raise AssertionError("unpickled")

    model = registry.add_model(folder)
    for place in (pickle, torch):
        monkeypatch.setattr(place, "load", refuse)
    monkeypatch.setattr(pickle, "loads", refuse)
    monkeypatch.setattr(pickle, "Unpickler", refuse)
    registry.load_agent(model.id)


def test_a_flipped_byte_anywhere_in_the_file(tmp_path, variant):
    """Whatever byte of the whole database flips: the same champion with the same content, or an error of ours."""
    path, copy = tmp_path / "registry.db", tmp_path / "copy" / "registry.db"
    copy.parent.mkdir()
    with Registry.open(str(path)) as registry:
        added = [registry.add_parts(variant(f"m{number}")) for number in range(3)]
        for model in added:
            registry.promote(model.id, "test")
        champion = registry.champion()
        content = {model.id: registry.model_parts(model.id) for model in added}
    whole = path.read_bytes()
    assert not path.with_name("registry.db-wal").exists()
    rng = random.Random(1)
    told = 0
    for place in [*range(0, 100, 3), *rng.sample(range(len(whole)), 250)]:
        flipped = bytearray(whole)
        flipped[place] ^= 1 << rng.randrange(8)
        shutil.rmtree(copy.parent)
        copy.parent.mkdir()
        copy.write_bytes(flipped)
        try:
            with Registry.open(str(copy), timeout=0.2) as registry:
                found = registry.champion()
                assert found == champion
                assert registry.model_parts(found.model_id) == content[found.model_id]
        except PortfolioSdpoError:
            told += 1
    assert 0 < told < 250


def test_the_champion_after_a_flipped_byte_in_its_promotion(tmp_path, variant):
    path = tmp_path / "registry.db"
    with Registry.open(str(path)) as registry:
        one, two = (registry.add_parts(variant(label)).id for label in "ab")
        registry.promote(one, "first")
        registry.promote(two, "second")
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TRIGGER promotions_no_update")
        connection.execute("UPDATE promotions SET model_id = ? WHERE seq = 2", [one])
    connection.close()
    with Registry.open(str(path)) as registry:
        with pytest.raises(RegistryError, match=r"log of promotions in the registry is damaged .row 2 was changed"):
            registry.champion()
        with pytest.raises(RegistryError, match="row 2 was changed"):
            registry.promote(one, "third")
        assert registry.verify_promotions().broken == 2
