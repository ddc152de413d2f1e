"""Entries of one spec on a payload of look-alikes: each fires on its own dispatch only, by either of IREE's flags."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from payload_texts import GELU, PADDED_CONVOLUTION, gelu_constants, matmul

from mlsearch import toolchain
from mlsearch.ir.library import library_text, readable
from mlsearch.payload import load_payload
from mlsearch.space.space import Space, space_of
from mlsearch.space.template import templates_for
from mlsearch.spec import TUNING_SPEC_FLAG, application
from mlsearch.target import resolve
from mlsearch.task import Task, cut
from mlsearch.toolchain import LIBRARY_FLAG

TARGET = resolve("llvm-cpu", 1)
LOOK_ALIKES = {
    "plain": matmul(name="plain"),
    "tanh": matmul(name="tanh", then="%y = math.tanh %x : f32"),
    "inner1": matmul(name="inner1", then="%c = arith.constant 1.5 : f32\n%y = arith.mulf %x, %c : f32"),
    "inner2": matmul(name="inner2", then="%c = arith.constant 2.5 : f32\n%y = arith.mulf %x, %c : f32"),
    "gelu1": matmul(name="gelu1", then=GELU, constants=gelu_constants("0.7")),
    "gelu2": matmul(name="gelu2", then=GELU, constants=gelu_constants("0.9")),
}


class Case:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "look_alikes.mlir"
        self.path.write_text("".join(LOOK_ALIKES.values()))
        payload = load_payload(self.path, TARGET, folder)
        templates = templates_for(TARGET, None)
        self.tasks: dict[str, tuple[Task, Space]] = {}
        for task in cut(payload, TARGET, folder):
            space = space_of(task, templates, TARGET)
            assert isinstance(space, Space), space
            self.tasks[task.functions[0].split("_dispatch")[0]] = task, space

    def library(self, *names: str) -> str:
        entries = []
        for name in names:
            task, space = self.tasks[name]
            entries.append(space.entry(task.entry_name, space.priors()[0]))
        return readable(library_text(entries))

    def name(self, which: str) -> str:
        return self.tasks[which][0].entry_name


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp("look_alikes"))


def test_look_alikes_are_different_tasks(case: Case) -> None:
    assert sorted(case.tasks) == sorted(LOOK_ALIKES)
    assert len({case.name(which) for which in case.tasks}) == len(LOOK_ALIKES)


def test_each_entry_fires_on_its_own_dispatch_only(case: Case) -> None:
    found = application(case.library(*case.tasks), "x", case.path, None, TARGET, case.folder)
    assert found.functions == {case.name(which): case.tasks[which][0].functions for which in case.tasks}


@pytest.mark.parametrize("which", LOOK_ALIKES)
def test_an_entry_alone_leaves_the_look_alikes_untouched(case: Case, which: str) -> None:
    found = application(case.library(which), "x", case.path, None, TARGET, case.folder)
    assert found.functions == {case.name(which): case.tasks[which][0].functions}


@pytest.mark.parametrize("flag", [LIBRARY_FLAG, TUNING_SPEC_FLAG])
def test_plain_iree_compile_applies_it_by_either_flag(case: Case, flag: str) -> None:
    spec = case.folder / "spec.mlir"
    spec.write_text(case.library("plain", "gelu2"))
    output = case.folder / "configured.mlir"
    argv = toolchain.compile_argv(
        case.path, output, TARGET.compile_flags, compile_to="executable-configurations", extra=(f"{flag}={spec}",)
    )
    done = toolchain.run(argv)
    assert done.returncode == 0, done.headline
    marked = re.findall(r'mlsearch\.entry = "([^"]*)"', output.read_text())
    assert set(marked) == {case.name("plain"), case.name("gelu2")}


def test_an_entry_passes_over_a_copy_that_is_a_dispatch_of_its_own(tmp_path: Path) -> None:
    """Such a copy works on memory and has no results; to ask what becomes of them crashes the compiler."""
    payload_path = tmp_path / "padded.mlir"
    payload_path.write_text(PADDED_CONVOLUTION)
    payload = load_payload(payload_path, TARGET, tmp_path)
    assert "slow_memcpy" in payload.flow_module.read_text()
    [convolution] = [task for task in cut(payload, TARGET, tmp_path) if task.view and "conv" in task.label]
    space = space_of(convolution, templates_for(TARGET, None), TARGET)
    assert isinstance(space, Space), space
    library = library_text([space.entry(convolution.entry_name, space.priors()[0])])
    found = application(library, "x", payload_path, None, TARGET, tmp_path)
    assert found.functions == {convolution.entry_name: convolution.functions}
