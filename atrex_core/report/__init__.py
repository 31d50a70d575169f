"""Reports: pure functions of evaluations."""
