"""Runs artifacts: are their numbers right, and how long do they take?"""

from mlsearch.runner.base import Runner
from mlsearch.runner.local import LocalRunner

__all__ = ["LocalRunner", "Runner"]
