"""One queue of work and the devices that take from it, each through a referee of its own."""

from atrex_core.scheduling.crew import Crew, LeftOut, Spoke
from atrex_core.scheduling.pool import Job, Pool
from atrex_core.scheduling.post import Done, Post
from atrex_core.scheduling.tally import Tally

__all__ = ["Crew", "Done", "Job", "LeftOut", "Pool", "Post", "Spoke", "Tally"]
