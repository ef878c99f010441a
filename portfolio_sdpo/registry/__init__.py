"""The registry: models and the champion, runs, promotions, and a tamper-evident audit log of served weights."""

from portfolio_sdpo.registry.audit import AuditEntry, AuditRow
from portfolio_sdpo.registry.hash_chain import LogCheck
from portfolio_sdpo.registry.jobs import Job
from portfolio_sdpo.registry.keys import ApiKey
from portfolio_sdpo.registry.models import Model
from portfolio_sdpo.registry.promotions import ANYONE, Promotion
from portfolio_sdpo.registry.records import to_record
from portfolio_sdpo.registry.registry import Registry
from portfolio_sdpo.registry.runs import Run

__all__ = [
    "ANYONE",
    "ApiKey",
    "AuditEntry",
    "AuditRow",
    "Job",
    "LogCheck",
    "Model",
    "Promotion",
    "Registry",
    "Run",
    "to_record",
]
