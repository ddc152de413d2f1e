"""Text of unknown origin, made fit for a terminal and for one line of a file."""

from __future__ import annotations


def one_line(text: str) -> str:
    """`text` without line breaks, other control characters spelled out.

    A name taken from a payload, or from a file of someone else, must not be able to move the cursor or change colours.
    """
    joined = " ".join(line.strip() for line in text.splitlines() if line.strip())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in joined)
