"""Public halves of problems, run where nothing else is: no package of ours, no pack."""

from atrex_core.isolated.interpreter import Answer, Ended, Interpreter, Question, Stated, Unlike

__all__ = ["Answer", "Ended", "Interpreter", "Question", "Stated", "Unlike"]
