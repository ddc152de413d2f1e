"""Compiles candidates: a `BuildRequest` in, an artifact or a typed failure out."""

from mlsearch.builder.base import Builder
from mlsearch.builder.local import LocalBuilder

__all__ = ["Builder", "LocalBuilder"]
