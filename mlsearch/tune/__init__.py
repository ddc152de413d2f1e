"""The loop: wires spaces, proposers, surrogate, builder, runner and records together, for a whole payload.

- `options`: what a user may choose.
- `workbench`: what every stage works with, and where the time goes.
- `trials`: the search of one task.
- `finals`: its best candidates against the untuned build, in pairs.
- `whole`: all winners together in the whole payload.
- `run`: all of these, one after the other.
"""

from mlsearch.tune.options import TuneOptions
from mlsearch.tune.run import tune

__all__ = ["TuneOptions", "tune"]
