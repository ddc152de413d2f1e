"""Search-first schedule compiler for MLIR: a payload and a target in, a proven transform-dialect spec out."""

__version__ = "0.1.0"
