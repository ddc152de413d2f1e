"""Names of the ops that a dispatch's function is made of, beside those that compute."""

from __future__ import annotations

LOADS = ("iree_tensor_ext.dispatch.tensor.load", "iree_codegen.load_from_buffer")
STORES = ("iree_tensor_ext.dispatch.tensor.store", "iree_codegen.store_to_buffer")
"""What writes a result of a dispatch; the value is the first operand."""
REPACKING = ("linalg.pack", "linalg.unpack")
"""What only puts elements into another layout, tile by tile."""
