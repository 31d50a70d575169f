# gate: compile
# reason: ^SystemExit: 0 \(line 7, in <module>\)$
"""Ends the program with success while it is imported."""

import sys

sys.exit(0)
