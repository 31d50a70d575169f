"""Lint problems: does the correctness gate of each tell right from wrong, on this device?

    with Linting(LintRequest(problems=(NAME,))) as linting:
        for record in linting.run(linting.plan()):
            print(record.problem, record.workload, [str(f.fate) for f in record.findings])

Packs' code runs in processes of its own: nothing here imports torch, and nothing that such a
process does ends a lint.
"""

from atrex_core.linting.conclusions import conclude
from atrex_core.linting.nouns import LintPlan, LintRequest
from atrex_core.linting.running import Linting

__all__ = ["LintPlan", "LintRequest", "Linting", "conclude"]
