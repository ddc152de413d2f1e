"""Element types that the runner can feed to a program and read back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np


class UnknownElementError(ValueError):
    """No input can be made, or no output read, of this type."""


@dataclass(frozen=True)
class Element:
    dtype: np.dtype[Any]
    hal_name: str
    """Member of `iree.runtime.HalElementType`."""

    @property
    def is_float(self) -> bool:
        return bool(np.issubdtype(self.dtype, np.floating)) or self.dtype in _EXTENDED_FLOATS

    @property
    def epsilon(self) -> float:
        """Relative distance between neighbouring values; 0 for integers."""
        return float(ml_dtypes.finfo(self.dtype).eps) if self.is_float else 0.0

    @property
    def nan_byte(self) -> int:
        """The byte that, repeated, makes a NaN of a float type."""
        # The FNUZ formats have one NaN, where the others have negative zero.
        return 0x80 if self.hal_name.endswith("FNUZ") else 0xFF


_ELEMENTS: dict[str, Element] = {
    "f64": Element(np.dtype(np.float64), "FLOAT_64"),
    "f32": Element(np.dtype(np.float32), "FLOAT_32"),
    "f16": Element(np.dtype(np.float16), "FLOAT_16"),
    "bf16": Element(np.dtype(ml_dtypes.bfloat16), "BFLOAT_16"),
    "f8E4M3FN": Element(np.dtype(ml_dtypes.float8_e4m3fn), "FLOAT_8_E4M3_FN"),
    "f8E4M3FNUZ": Element(np.dtype(ml_dtypes.float8_e4m3fnuz), "FLOAT_8_E4M3_FNUZ"),
    "f8E5M2": Element(np.dtype(ml_dtypes.float8_e5m2), "FLOAT_8_E5M2"),
    "f8E5M2FNUZ": Element(np.dtype(ml_dtypes.float8_e5m2fnuz), "FLOAT_8_E5M2_FNUZ"),
    "i1": Element(np.dtype(np.bool_), "BOOL_8"),
    **{f"i{n}": Element(np.dtype(f"int{n}"), f"INT_{n}") for n in (8, 16, 32, 64)},
    **{f"si{n}": Element(np.dtype(f"int{n}"), f"SINT_{n}") for n in (8, 16, 32, 64)},
    **{f"ui{n}": Element(np.dtype(f"uint{n}"), f"UINT_{n}") for n in (8, 16, 32, 64)},
}

_EXTENDED_FLOATS = frozenset(
    element.dtype for name, element in _ELEMENTS.items() if name == "bf16" or name.startswith("f8")
)


def element(name: str) -> Element:
    """By MLIR name. Raises UnknownElementError, e.g. for complex and sub-byte types."""
    if name not in _ELEMENTS:
        raise UnknownElementError(f"element type '{name}' can't be run; known: {', '.join(_ELEMENTS)}")
    return _ELEMENTS[name]
