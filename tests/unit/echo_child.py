"""A child process for tests of the parent's side."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from mlsearch.child import child_arguments, serve


def answer(request: dict[str, Any]) -> dict[str, Any]:
    match request["do"]:
        case "hang":
            time.sleep(60)
        case "crash":
            os.abort()
        case "exit":
            os.write(1, b"last words\n")
            os.write(
                1, b'nanobind: leaked 1 instances!\n - leaked instance 0x1 of type "x"\n - ... skipped remainder\n'
            )
            os.write(1, b"See https://nanobind.readthedocs.io/en/latest/refleaks.html\n")
            sys.exit(3)
        case "shout":
            os.write(1, b'{"noise": true}\n' * 10)
        case "allocate":
            try:
                bytearray(request["bytes"])
            except MemoryError:
                return {"memory": "refused"}
            return {"memory": "given"}
    return {"echo": request, "pid": os.getpid(), "arguments": child_arguments()}


if __name__ == "__main__":
    serve(answer)
