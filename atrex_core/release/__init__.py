"""What candidates' authors may see of a problem: the view, a folder of views, and its proof."""

from atrex_core.release.build import write
from atrex_core.release.claims import Claim, Standing
from atrex_core.release.contents import Release, release_of
from atrex_core.release.verify import verify
from atrex_core.release.view import release_view

__all__ = ["Claim", "Release", "Standing", "release_of", "release_view", "verify", "write"]
