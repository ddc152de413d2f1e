"""A child that answers, hangs, dies or talks too much, and a parent that goes on in each case."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlsearch.child import Child, ChildDied, ChildTimeout


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Child]:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    each = Child("echo_child", ["a b", "$c"], log=tmp_path / "folder" / "child.log", memory_bytes=1 << 30)
    yield each
    each.kill()


def test_requests_are_answered_by_one_process(child: Child) -> None:
    first = child.request({"do": "echo", "text": "µ\n"}, 20)
    second = child.request({"do": "echo"}, 20)
    assert first["echo"]["text"] == "µ\n"
    assert first["arguments"] == ["a b", "$c"]
    assert first["pid"] == second["pid"] != os.getpid()


def test_a_child_that_hangs_is_killed_in_time_and_started_afresh(child: Child) -> None:
    pid = child.request({"do": "echo"}, 20)["pid"]
    began = time.monotonic()
    with pytest.raises(ChildTimeout):
        child.request({"do": "hang"}, 0.3)
    assert time.monotonic() - began < 5
    assert child.request({"do": "echo"}, 20)["pid"] != pid


def test_a_late_answer_is_never_taken_for_the_next_requests(child: Child) -> None:
    pid = child.request({"do": "echo"}, 20)["pid"]
    child.send({"do": "hang"})
    with pytest.raises(ChildTimeout):
        child.receive(0.2)
    child.send({"do": "echo"})
    assert child.receive(20)["pid"] != pid


@pytest.mark.parametrize(("do", "how"), [("crash", "signal SIGABRT"), ("exit", "exit code 3")])
def test_a_child_that_dies_says_how_and_is_started_afresh(child: Child, do: str, how: str) -> None:
    with pytest.raises(ChildDied) as caught:
        child.request({"do": do}, 20)
    assert caught.value.how == how
    if do == "exit":
        assert str(caught.value).endswith("last words: last words")
    assert child.request({"do": "echo"}, 20)["echo"] == {"do": "echo"}


def test_what_native_code_prints_goes_to_the_log(child: Child) -> None:
    assert child.request({"do": "shout"}, 20)["echo"] == {"do": "shout"}
    assert child.log.read_text().count("noise") == 10


def test_memory_is_limited(child: Child) -> None:
    assert child.request({"do": "allocate", "bytes": 1 << 20}, 20) == {"memory": "given"}
    assert child.request({"do": "allocate", "bytes": 1 << 31}, 20) == {"memory": "refused"}


def test_an_interrupt_while_waiting_leaves_no_answer_behind(child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    child.request({"do": "echo"}, 20)

    def interrupted(timeout_s: float) -> dict[str, object]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(child, "receive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            child.request({"do": "echo", "number": 1}, 20)
    assert child.request({"do": "echo", "number": 2}, 20)["echo"]["number"] == 2


def test_a_busy_child_ends_with_its_parent(tmp_path: Path) -> None:
    parent = f"""
from pathlib import Path
from mlsearch.child import Child
child = Child("echo_child", log=Path({str(tmp_path / "log")!r}))
pid = child.request({{"do": "echo"}}, 20)["pid"]
child.send({{"do": "hang"}})
print(pid, flush=True)
child.receive(60)
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    process.kill()
    process.wait()
    process.stdout.close()
    deadline = time.monotonic() + 10
    while _is_alive(pid):
        assert time.monotonic() < deadline, "the child outlived its parent"
        time.sleep(0.02)


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")
