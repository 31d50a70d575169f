# gate: compile
# reason: ^ModuleNotFoundError: No module named 'quantum_kernels' \(line 5, in <module>\)$
"""Needs a module that nobody has."""

import quantum_kernels

Model = quantum_kernels.Model
