"""Checkpoints: everything comes back, nothing half written or altered is believed."""

from __future__ import annotations

import random

import pytest
import torch

from portfolio_sdpo.envs.random_cmdp import RandomCmdpVectorEnv, random_cmdp
from portfolio_sdpo.errors import CheckpointError
from portfolio_sdpo.nn.networks import ObservationCodec
from portfolio_sdpo.risk import Constraint
from portfolio_sdpo.rl import checkpoint
from portfolio_sdpo.rl.algorithms import ActorSettings, Problem, SdpoSettings, build
from portfolio_sdpo.rl.critics import CriticSettings
from portfolio_sdpo.rl.rollout import Collector, Purpose, stream, torch_generator

ENV = RandomCmdpVectorEnv(random_cmdp(4, 2, seed=0, noise_scale=1.0, horizon=3, costs=("pain",)), 5)
PROBLEM = Problem(
    constraints=(Constraint.from_spec("variance of reward <= 9"), Constraint.from_spec("expectation of pain <= 9")),
)


def learner(seed=0, hidden=(3,), **critic):
    settings = SdpoSettings(
        actor=ActorSettings(hidden=hidden, learning_rate=0.01),
        critic=CriticSettings(kind="quantile", hidden=(3,), dimension=4, atoms=4, warm_up=1, **critic),
        estimator="pathwise",
    )
    torch.manual_seed(seed)
    return build(settings, PROBLEM, ObservationCodec(ENV.single_observation_space), ENV.single_action_space)


def update(algorithm, iteration):
    rollout = Collector(ENV, PROBLEM.signals(), 3, seed=0).collect(algorithm.policy, iteration)
    return algorithm.update(rollout, iteration, torch_generator(stream(0, iteration, Purpose.UPDATE)))


def states(algorithm):
    """Every tensor of the learner, by name."""
    found = {name: tensor.clone() for name, tensor in algorithm.state_dict().items()}
    for number, optimiser in enumerate(algorithm.optimisers()):
        for index, state in optimiser.state_dict()["state"].items():
            found |= {f"{number}.{index}.{name}": tensor.clone() for name, tensor in state.items()}
    return found


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]) or (tensor.isnan() & other[name].isnan()).all(), name


@pytest.fixture(scope="module")
def trained():
    algorithm = learner()
    for iteration in range(2):
        update(algorithm, iteration)
    return algorithm


@pytest.mark.parametrize("shared", [False, True])
def test_round_trip(tmp_path, shared):
    """Also with a shared trunk, whose tensors are one in memory: the copy goes on exactly as the original does."""
    algorithm = learner(shared_trunk=shared)
    for iteration in range(2):
        update(algorithm, iteration)
    path = checkpoint.save_checkpoint(tmp_path, algorithm, 2, "run")
    fresh = learner(seed=1, shared_trunk=shared)
    assert checkpoint.load_checkpoint(path, fresh, "run") == 2
    assert_same(states(fresh), states(algorithm))
    assert update(fresh, 2) == update(algorithm, 2)
    assert_same(states(fresh), states(algorithm))


def test_before_the_first_update(tmp_path):
    """Optimisers have no state yet, risks are NaN."""
    algorithm, fresh = learner(), learner(seed=1)
    checkpoint.load_checkpoint(checkpoint.save_checkpoint(tmp_path, algorithm, 0, "run"), fresh, "run")
    assert update(fresh, 0) == update(algorithm, 0)


def test_same_state_same_bytes(trained, tmp_path):
    contents = set()
    for copy in range(5):
        (tmp_path / str(copy)).mkdir()
        contents.add(checkpoint.save_checkpoint(tmp_path / str(copy), trained, 7, "run").read_bytes())
    assert len(contents) == 1


def test_a_flipped_byte_is_found_wherever_it_is(trained, tmp_path):
    earlier = checkpoint.save_checkpoint(tmp_path, trained, 1, "run")
    path = checkpoint.save_checkpoint(tmp_path, trained, 2, "run")
    content = path.read_bytes()
    header = 8 + int.from_bytes(content[:8], "little")
    rng = random.Random(0)
    places = [*range(16), *rng.sample(range(16, header), 200), *rng.sample(range(header, len(content)), 60)]
    fresh = learner(seed=1)
    before = states(fresh)
    for place in places:
        flipped = bytearray(content)
        flipped[place] ^= rng.choice([1 << bit for bit in range(8)] + [0xFF])
        path.write_bytes(flipped)
        with pytest.raises(CheckpointError, match=r"is corrupt \(.*\): delete it to continue from the one before"):
            checkpoint.load_checkpoint(path, fresh, "run")
    assert_same(states(fresh), before)
    assert checkpoint.load_checkpoint(earlier, fresh, "run") == 1


def test_a_changed_type_is_found(trained, tmp_path):
    """The bytes of the tensors are as they were, but would be read as whole numbers."""
    path = checkpoint.save_checkpoint(tmp_path, trained, 2, "run")
    content = path.read_bytes()
    assert b'"F32"' in content
    parts = content.split(b'"F32"')
    fresh = learner()
    for place in range(0, len(parts) - 1, 5):
        path.write_bytes(b'"F32"'.join(parts[: place + 1]) + b'"I32"' + b'"F32"'.join(parts[place + 1 :]))
        with pytest.raises(CheckpointError, match="its digest does not match"):
            checkpoint.load_checkpoint(path, fresh, "run")


@pytest.mark.parametrize("length", [0, 4, 100, 3000, -1])
def test_a_truncated_file_is_found(trained, tmp_path, length):
    path = checkpoint.save_checkpoint(tmp_path, trained, 2, "run")
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(CheckpointError, match="is corrupt"):
        checkpoint.load_checkpoint(path, learner(), "run")


def test_other_files_are_refused(trained, tmp_path):
    path = checkpoint.save_checkpoint(tmp_path, trained, 2, "run")
    with pytest.raises(CheckpointError, match="written by a run with other settings"):
        checkpoint.load_checkpoint(path, learner(), "another run")
    with pytest.raises(CheckpointError, match=r"^\S+ does not fit the networks of this run, [^\n]*\.$"):
        checkpoint.load_checkpoint(path, learner(hidden=(4,)), "run")
    with pytest.raises(CheckpointError, match="there is no checkpoint at"):
        checkpoint.load_checkpoint(tmp_path / "checkpoint-0000009.safetensors", learner(), "run")
    foreign = tmp_path / "foreign.safetensors"
    from safetensors.torch import save

    foreign.write_bytes(save({"x": torch.zeros(2)}))
    with pytest.raises(CheckpointError, match="is corrupt"):
        checkpoint.load_checkpoint(foreign, learner(), "run")


def test_only_the_policy_of_another_run(trained, tmp_path):
    path = checkpoint.save_checkpoint(tmp_path, trained, 2, "run")
    fresh = learner(seed=1)
    critics = {name: tensor.clone() for name, tensor in fresh.critics.state_dict().items()}
    checkpoint.load_policy(path, fresh)
    assert_same(dict(fresh.policy.state_dict()), dict(trained.policy.state_dict()))
    assert_same(dict(fresh.critics.state_dict()), critics)
    with pytest.raises(CheckpointError, match=r"^the policy in \S+ does not fit this run's: [^\n]*\.$"):
        checkpoint.load_policy(path, learner(hidden=()))


def test_the_newest_two_stay(trained, tmp_path):
    for iteration in (1, 2, 10, 9, 100):
        checkpoint.save_checkpoint(tmp_path, trained, iteration, "run")
    names = [path.name for path in checkpoint.checkpoints(tmp_path)]
    assert names == ["checkpoint-0000010.safetensors", "checkpoint-0000100.safetensors"]


def test_fingerprints_tell_settings_apart():
    assert checkpoint.fingerprint(["a", "b"]) == checkpoint.fingerprint(["a", "b"])
    assert len({checkpoint.fingerprint(parts) for parts in (["a", "b"], ["ab"], ["b", "a"], ["a", "b", ""])}) == 4
