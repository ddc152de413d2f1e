"""The loop: wires spaces, proposers, surrogate, builder, runner and records together, for a whole payload.

- `options`: what a user may choose.
- `trials`: the search of one task.
- `finals`, `rounds`: its best candidates against the untuned build, in interleaved rounds, and how many of these.
- `whole`: all winners together in the whole payload.
- `contender`, `contest`: one variant of the payload on its way, and all of them against one another.
- `summaries`: what was found, as a report shows it.
- `run`: all of these, one after the other.
- `ahead`, `unmeasured`: the loop without a device.
"""

from mlsearch.tune.options import TuneOptions
from mlsearch.tune.run import tune

__all__ = ["TuneOptions", "tune"]
