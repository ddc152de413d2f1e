"""Says that a run is alive when nothing else does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Heartbeat:
    """Calls `beat` from a daemon thread whenever `silence_s` pass without `touch`."""

    def __init__(self, beat: Callable[[], None], silence_s: float) -> None:
        self._beat = beat
        self._silence_s = silence_s
        self._stopped = threading.Event()
        self._touched = time.monotonic()
        self._thread = threading.Thread(target=self._watch, name="mlsearch-heartbeat", daemon=True)

    def start(self) -> None:
        self.touch()
        self._thread.start()

    def touch(self) -> None:
        """Something was said just now."""
        self._touched = time.monotonic()

    def stop(self) -> None:
        """Returns once no further beat can come."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        while not self._stopped.wait(max(0.0, self._touched + self._silence_s - time.monotonic())):
            if time.monotonic() - self._touched < self._silence_s:
                continue
            try:
                self._beat()
            except OSError:
                # Nobody listens any more; the next write of the main thread finds out and ends the run.
                return
            self.touch()
