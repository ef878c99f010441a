"""What is served: the champion's decision on the latest prices, and whether it is fresh enough to be given.

The REST service and the *Live* page of the dashboard both answer with this code, so they always agree.

    from portfolio_sdpo.registry import Registry
    from portfolio_sdpo.serving import AnswerSettings, ChampionDecisions, make_answer

    with Registry.open() as registry:
        decisions = ChampionDecisions(registry)
        answer = make_answer(decisions, decisions.read_state(), AnswerSettings())
"""

from portfolio_sdpo.serving.answer import (
    Answer,
    AnswerSettings,
    Refusal,
    Weights,
    answer_all_cash,
    answer_decision,
    make_answer,
)
from portfolio_sdpo.serving.champion import (
    ChampionDecisions,
    ChampionState,
    NotServableError,
    leave_out_suspicious,
)
from portfolio_sdpo.serving.decision import Decision, TrainedAgents, decide
from portfolio_sdpo.serving.orders import OrderRequest, Orders, explain_shield, order_champion

__all__ = [
    "Answer",
    "AnswerSettings",
    "ChampionDecisions",
    "ChampionState",
    "Decision",
    "NotServableError",
    "OrderRequest",
    "Orders",
    "Refusal",
    "TrainedAgents",
    "Weights",
    "answer_all_cash",
    "answer_decision",
    "decide",
    "explain_shield",
    "leave_out_suspicious",
    "make_answer",
    "order_champion",
]
