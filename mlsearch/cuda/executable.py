"""What an artifact holds for the GPU: kernels with their launch parameters, and the PTX.

Reads IREE's flatbuffers (`cuda_executable_def.fbs`, identifier CDA1) where they lie in the `.vmfb`, so nothing has to
be dumped while compiling.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_IDENTIFIER = b"CDA1"


@dataclass(frozen=True)
class Kernel:
    name: str
    block: tuple[int, int, int]
    """Threads of a block along x, y, z."""
    shared_bytes: int
    """Dynamic shared memory of a block."""
    ptx: str
    """The module that it is in."""

    @property
    def threads(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]


def read_kernels(artifact: bytes) -> tuple[Kernel, ...]:
    """All kernels of an artifact, in the order of its executables; none in an artifact for another backend."""
    return tuple(kernel for start in _executables(artifact) for kernel in _kernels(artifact, start))


def _executables(artifact: bytes) -> Iterator[int]:
    """Offsets where a flatbuffer of CUDA executables starts; its identifier stands four bytes in."""
    position = artifact.find(_IDENTIFIER)
    while position >= 4:
        yield position - 4
        position = artifact.find(_IDENTIFIER, position + 1)


def _kernels(data: bytes, start: int) -> Iterator[Kernel]:
    root = start + _u32(data, start)
    try:
        modules = [_string(data, _field(data, module, 0)) for module in _vector(data, _field(data, root, 1))]
        for export in _vector(data, _field(data, root, 0)):
            ordinal, name, block, shared = (_field(data, export, number) for number in range(4))
            yield Kernel(
                _string(data, name),
                struct.unpack_from("<3I", data, block) if block else (1, 1, 1),
                _u32(data, shared) if shared else 0,
                modules[_u32(data, ordinal) if ordinal else 0],
            )
    except (struct.error, IndexError, UnicodeDecodeError):
        return  # the identifier's letters stood there by chance


def _u32(data: bytes, offset: int) -> int:
    return int(struct.unpack_from("<I", data, offset)[0])


def _field(data: bytes, table: int, number: int) -> int:
    """Offset of a table's field, or 0 if it isn't there."""
    vtable = table - int(struct.unpack_from("<i", data, table)[0])
    size = struct.unpack_from("<H", data, vtable)[0]
    place = 4 + 2 * number
    offset = struct.unpack_from("<H", data, vtable + place)[0] if place < size else 0
    return table + offset if offset else 0


def _vector(data: bytes, field: int) -> list[int]:
    """Offsets of the tables in a vector of tables."""
    if not field:
        return []
    vector = field + _u32(data, field)
    places = [vector + 4 + 4 * index for index in range(min(_u32(data, vector), 1 << 16))]
    return [place + _u32(data, place) for place in places]


def _string(data: bytes, field: int) -> str:
    string = field + _u32(data, field)
    length = _u32(data, string)
    return data[string + 4 : string + 4 + length].decode()
