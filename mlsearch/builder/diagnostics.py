"""Reads what IREE's compiler says: the configured IR and the messages on stderr. Pure."""

from __future__ import annotations

import re

_LOAD_FAILED = "Failed to load transform library module"
_RACE = "tiling is not thread safe"
_MEMORY_SIGNS = (
    "out of memory",
    "bad_alloc",
    "pthread_create failed",  # a thread's stack counts as address space
    "Cannot allocate memory",
    "MemoryError",
)
_HEADLINE_LINES = 3
_LINE_LENGTH = 300

# Strings are read whole, so that text which looks like an entry inside of one isn't taken for an entry.
_STRING = rb'"([^"\\]*(?:\\.[^"\\]*)*)"'
_ENTRY_OR_STRING = re.compile(rb"(?<![\w.$])mlsearch\.entry = " + _STRING + rb"|" + _STRING, re.DOTALL)
_ESCAPE = re.compile(rb"\\(?:([0-9A-Fa-f]{2})|(.))", re.DOTALL)
_LETTER_ESCAPES = {b"n": b"\n", b"t": b"\t"}


def entries_in(ir: bytes) -> frozenset[str]:
    """Values of all `mlsearch.entry` attributes in printed IR."""
    found = (match[1] for match in _ENTRY_OR_STRING.finditer(ir))
    return frozenset(_unescape(value) for value in found if value is not None)


def _unescape(text: bytes) -> str:
    def plain(match: re.Match[bytes]) -> bytes:
        if match[1]:
            return bytes.fromhex(match[1].decode())
        return _LETTER_ESCAPES.get(match[2], match[2])

    return _ESCAPE.sub(plain, text).decode(errors="replace")


def headline(said: str) -> str:
    """The first error lines without the IR after them; else the first line; empty if nothing was said."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if "error:" in line or line.startswith("LLVM ERROR")]
    chosen = errors[:_HEADLINE_LINES] or lines[:1]
    return "\n".join(line[:_LINE_LENGTH] for line in chosen)


def failed_stage(said: str) -> str | None:
    """The stage that failed although the compiler may report success, or None.

    IREE goes on with its default schedule when a library doesn't load, and computes wrong numbers when a
    reduction is tiled in parallel.
    """
    if _LOAD_FAILED in said:
        return "library"
    return "compile" if _RACE in said else None


def ran_out_of_memory(said: str) -> bool:
    return any(sign in said for sign in _MEMORY_SIGNS)
