"""What evaluations add up to. Pure: any stored result can be scored again without running.

S(operator, shape) is the share of the roofline; 0 when a gate failed. S_i is its median over the
operator's published workloads at full scale, and S_agg = sum w_i S_i over the *whole* pack, with
weights that add up to 1: an operator nobody submitted scores 0. Where that would mislead, the
headline is withheld and the summary says why; the figures of each operator stay.

How the cases in between are treated:

- Two results of one submission, workload and device: the later one counts, never the better one.
- Several submissions for one operator are scored apart, in `by_submission`. With `best_of` only
  the one with the highest S_i by device time is kept, for every figure of the summary.
- A `roofline_violation` is left out of medians, and does not withhold the headline although its
  performance gate was not judged. An operator with nothing else scores 0.
- Errored and unmeasured workloads are nobody's zero: they withhold the headline instead.
- Where one clock gave no time for a workload that passed, that clock's figure counts 0 there; a
  clock that gave no time at all has no figure.
- By phase, an operator keeps its only weight (`derived`) and counts the workloads observed in
  that phase or in both.
"""

from atrex_core.scoring.nouns import (
    Aggregate,
    OperatorSummary,
    PhaseSummary,
    ProblemFacts,
    Selection,
    SubmissionSummary,
    Summary,
)
from atrex_core.scoring.summarise import summarise

__all__ = [
    "Aggregate",
    "OperatorSummary",
    "PhaseSummary",
    "ProblemFacts",
    "Selection",
    "SubmissionSummary",
    "Summary",
    "summarise",
]
