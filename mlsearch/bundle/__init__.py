"""Build here, measure there: one file with compiled candidates goes to the machine that has the device, and one file
with what was measured comes back.

- `manifest`, `archive`: the bundle; data that is checked when it is opened.
- `measured`: the file that comes back, one line per measurement.
- `measure`, `site`, `standalone`: the other machine's side. Standard library, NumPy and iree.runtime only.
- `runner_source`: that side as one file, for a machine without mlsearch.
- `export`, `ahead`, `intake`, `decision`, `proven`: this machine's side.
"""

from mlsearch.bundle.archive import BundledCandidate, BundledTask, write_bundle

__all__ = ["BundledCandidate", "BundledTask", "write_bundle"]
