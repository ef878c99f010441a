"""What is live and why: runs, models, promotions, and an audit of served weights that cannot be changed unseen."""

from portfolio_sdpo.registry.audit import AuditEntry, AuditRow
from portfolio_sdpo.registry.chain import Check
from portfolio_sdpo.registry.jobs import Job
from portfolio_sdpo.registry.keys import ApiKey
from portfolio_sdpo.registry.models import Model
from portfolio_sdpo.registry.promotions import ANYONE, Promotion
from portfolio_sdpo.registry.registry import Registry
from portfolio_sdpo.registry.runs import Run
from portfolio_sdpo.registry.values import to_record

__all__ = [
    "ANYONE",
    "ApiKey",
    "AuditEntry",
    "AuditRow",
    "Check",
    "Job",
    "Model",
    "Promotion",
    "Registry",
    "Run",
    "to_record",
]
