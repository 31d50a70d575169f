# gate: compile
# reason: ^the process exited with status 0 instead of returning during import$
"""Ends the process with success, past all handlers."""

import os

os._exit(0)
