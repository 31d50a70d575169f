"""`python -m atrex_core` is `atrex-eval`."""

from atrex_core.cli import main

main()
