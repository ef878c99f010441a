"""One row of the training log, as `metrics.parquet` holds it.

| column | |
|---|---|
| `return`, `objective` | mean return of the batch's whole episodes; the learner's estimate of what it maximises |
| `risk_i`, `risk_se_i` | estimate of constraint i's risk, and its standard error |
| `risk_plug_in_i`, `risk_empirical_i` | the critic's own value of it, and that of the episodes just seen |
| `slack_i`, `price_i`, `regime_i` | how far inside the bound, what a unit of risk costs, where on the barrier |
| `phase`, `suboptimality_bound` | 1 while a feasible policy is sought; Σ 1/η_i of Theorem 1 |
| `critic_loss`, `explained_variance` | last loss of the critics; share of the λ-returns' variance that they explain |
| `kl`, `entropy`, `clip_fraction` | of the policy after the update; share of ratios beyond the clipping range |
| `recovery`, `step_length` | CPO and PCPO: whether a step only decreased costs, and the accepted share of it |
"""

LogRow = dict[str, float | str]
"""Numbers by column, and the barrier's regimes as words."""
