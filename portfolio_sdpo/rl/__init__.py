"""The learning engine: rollouts, advantages, critics, the training loop, and one short file per algorithm."""

from portfolio_sdpo.rl.algorithms import (
    ActorSettings,
    AlgorithmSettings,
    IpoSettings,
    PpoSettings,
    Problem,
    SdpoSettings,
)
from portfolio_sdpo.rl.critics import CriticSettings
from portfolio_sdpo.rl.rollout import Collector, Rollout
from portfolio_sdpo.rl.trainer import Trainer, TrainSettings, worker_collector
from portfolio_sdpo.rl.workers import WorkerCollector

__all__ = [
    "ActorSettings",
    "AlgorithmSettings",
    "Collector",
    "CriticSettings",
    "IpoSettings",
    "PpoSettings",
    "Problem",
    "Rollout",
    "SdpoSettings",
    "TrainSettings",
    "Trainer",
    "WorkerCollector",
    "worker_collector",
]
