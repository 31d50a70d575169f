# gate: compile
# reason: ^the file defines no class `Model`$
"""Puts another object into `sys.modules` in its own place."""

import sys
import types

sys.modules[__name__] = types.SimpleNamespace(Model=int)
