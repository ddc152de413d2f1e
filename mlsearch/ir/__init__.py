"""All use of MLIR's Python bindings. The rest of the package deals in text and plain values.

The bindings are the ones inside `iree-base-compiler`: same commit as the compiler, so text round-trips.
"""
