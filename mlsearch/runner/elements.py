"""Element types that the runner can feed to a program and read back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

try:
    import ml_dtypes
except ImportError:  # a bare machine may do without: NumPy alone has no bf16 and no f8
    ml_dtypes = None


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
        if not self.is_float:
            return 0.0
        finfo = ml_dtypes.finfo if self.dtype in _EXTENDED_FLOATS else np.finfo
        return float(finfo(self.dtype).eps)

    @property
    def nan_byte(self) -> int:
        """The byte that, repeated, makes a NaN of a float type."""
        # The FNUZ formats have one NaN, where the others have negative zero.
        return 0x80 if self.hal_name.endswith("FNUZ") else 0xFF


_EXTENDED: dict[str, tuple[str, str]] = {
    "bf16": ("bfloat16", "BFLOAT_16"),
    "f8E4M3FN": ("float8_e4m3fn", "FLOAT_8_E4M3_FN"),
    "f8E4M3FNUZ": ("float8_e4m3fnuz", "FLOAT_8_E4M3_FNUZ"),
    "f8E5M2": ("float8_e5m2", "FLOAT_8_E5M2"),
    "f8E5M2FNUZ": ("float8_e5m2fnuz", "FLOAT_8_E5M2_FNUZ"),
}
"""Name in ml_dtypes and in HAL of the types that NumPy lacks."""

_ELEMENTS: dict[str, Element] = {
    "f64": Element(np.dtype(np.float64), "FLOAT_64"),
    "f32": Element(np.dtype(np.float32), "FLOAT_32"),
    "f16": Element(np.dtype(np.float16), "FLOAT_16"),
    "i1": Element(np.dtype(np.bool_), "BOOL_8"),
    **{f"i{n}": Element(np.dtype(f"int{n}"), f"INT_{n}") for n in (8, 16, 32, 64)},
    **{f"si{n}": Element(np.dtype(f"int{n}"), f"SINT_{n}") for n in (8, 16, 32, 64)},
    **{f"ui{n}": Element(np.dtype(f"uint{n}"), f"UINT_{n}") for n in (8, 16, 32, 64)},
}

if ml_dtypes is not None:
    _ELEMENTS |= {name: Element(np.dtype(getattr(ml_dtypes, own)), hal) for name, (own, hal) in _EXTENDED.items()}

_EXTENDED_FLOATS = frozenset(_ELEMENTS[name].dtype for name in _EXTENDED if name in _ELEMENTS)


def element(name: str) -> Element:
    """By MLIR name. Raises UnknownElementError, e.g. for complex and sub-byte types."""
    if name in _EXTENDED and name not in _ELEMENTS:
        raise UnknownElementError(f"element type '{name}' needs the package ml_dtypes: pip install ml_dtypes")
    if name not in _ELEMENTS:
        raise UnknownElementError(f"element type '{name}' can't be run; known: {', '.join(_ELEMENTS)}")
    return _ELEMENTS[name]
