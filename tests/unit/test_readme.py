"""The documents say what the code does: every command and option, every level and fact of a template."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from test_cli_help import COMMANDS, options

from mlsearch.candidate import OUTCOMES
from mlsearch.ir.template import read_declarations
from mlsearch.space.constraints import evaluate
from mlsearch.space.gpu_layout import EXTRAS, GPU_LEVELS
from mlsearch.space.layout import BUFFERS, CONSUMERS, MATMULS
from mlsearch.space.template import built_in_folder, load_templates
from mlsearch.summary import TaskSummary, TimeSpent, TuneSummary
from mlsearch.tune.options import BUDGETS
from mlsearch.variant import SWITCHES, check_flags
from mlsearch.workload import CPU_LEVELS

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
TEMPLATES = (ROOT / "docs/templates.md").read_text()


def section(name: str) -> str:
    """The README's section about a command; those of `records` share one."""
    group = name.split()[0]
    for part in re.split(r"\n(?=##)", README):
        if part.startswith(f"### `mlsearch {group} "):
            return part
    return ""


def spelled_in(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text))


def command_lines() -> Iterator[list[str]]:
    """Calls of our command in the README's code blocks, without the program's name."""
    for block in re.findall(r"```\n(.*?)```", README, re.DOTALL):
        for line in block.splitlines():
            line = line.removeprefix("$ ")
            if line.startswith(("mlsearch ", "tools/dev ")) and line != "tools/dev test":
                yield shlex.split(line)[1:]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_readme_has_every_command_with_its_long_options(name: str) -> None:
    text = section(name)
    assert f"`mlsearch {name}" in text
    missing = [
        long
        for option in options(COMMANDS[name])
        for long in option.opts
        if long.startswith("--") and long not in spelled_in(text)
    ]
    assert missing == []


@pytest.mark.parametrize("group", ["tune", "inspect", "space", "compile", "verify", "records", "bundle"])
def test_the_readme_gives_a_command_no_option_that_it_lacks(group: str) -> None:
    known = {
        long for name, command in COMMANDS.items() if name.split()[0] == group
        for option in options(command) for long in option.opts
    }  # fmt: skip
    foreign = {flag for flag in spelled_in(section(group)) if not flag.startswith("--iree-")}
    assert foreign <= known


def test_the_commands_that_the_readme_shows_can_be_parsed() -> None:
    lines = [words for words in command_lines() if words != ["--version"]]
    assert len(lines) >= 4
    for name, *arguments in lines:
        COMMANDS[name].parse_args(click.Context(COMMANDS[name]), arguments)


def test_the_files_that_the_readme_names_are_there() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README) + re.findall(r"samples/\w+\.mlir|tools/\w+(?:\.py)?", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_readme_lists_the_built_in_templates() -> None:
    for backend in ("cpu", "cuda"):
        listed = set(re.findall(rf"^\| `({backend}/\w+)`", README, re.MULTILINE))
        assert listed == {template.id for template in load_templates(built_in_folder(), backend)}


@pytest.mark.parametrize("record", [TuneSummary, TaskSummary, TimeSpent])
def test_the_readme_explains_every_json_field(record: type) -> None:
    assert [name for name in record.__dataclass_fields__ if f"`{name}`" not in README and name != "tasks"] == []


def test_the_readme_knows_all_outcomes_and_budgets() -> None:
    assert all(f"`{outcome}`" in README for outcome in OUTCOMES)
    assert "{quick}, {default} or {full} trials".format(**BUDGETS) in README
    assert "\\|".join(BUDGETS) in README


def test_the_template_format_names_every_level() -> None:
    levels = (*CPU_LEVELS, *GPU_LEVELS, *MATMULS, CONSUMERS, EXTRAS, BUFFERS)
    assert [level for level in levels if f"`{level}`" not in TEMPLATES] == []


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_the_template_format_explains_every_dim_that_is_no_loop(backend: str) -> None:
    facts = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", TEMPLATES, re.MULTILINE)
    named = set(re.findall(r"`(\w+)`", " ".join(facts)))
    for template in load_templates(built_in_folder(), backend):
        dims = {name for name in template.declarations.dims if not re.fullmatch(r"[bmnkofdprs]\d*", name)}
        assert dims <= named


def test_the_constraints_in_the_template_format_are_accepted_as_they_stand() -> None:
    [block] = [text for text in re.findall(r"```mlir\n(.*?)```", TEMPLATES, re.DOTALL) if "^bb0" in text]
    sequence = "transform.named_sequence @{}(%op: !transform.any_op {{transform.readonly}}) {{ transform.yield }}\n"
    constants = "%m = arith.constant 8 : index\n%k = arith.constant 8 : index\n%lanes = arith.constant 16 : index\n"
    body = constants + block + sequence.format("schedule") + sequence.format("__kernel_config")
    text = f"module attributes {{transform.with_named_sequence}} {{\n{body}}}\n"
    declared = read_declarations(text, "docs/templates.md")
    assert declared.domains == {"tile_m": (1, 2, 4, 8), "dist_m": (0, 1, 2)}
    [assertion] = declared.assertions
    assert [bool(evaluate(assertion.condition, {"tile_m": tile}, {"m": 4})) for tile in (4, 8)] == [True, False]


def test_the_template_format_lists_every_flag_that_a_variant_may_set() -> None:
    flags = re.findall(r"`(--iree-[\w-]+)`", TEMPLATES.split("The flags that a variant may set")[1].split("## ")[0])
    values = {"level": "=O3", "ukernels": "=all", "limit": "=4096", "pipeline": "=builtin.module(cse)"}
    check_flags([flag + values.get(flag.rsplit("-", 1)[1], "") for flag in flags], "docs/templates.md")
    assert {f"--iree-{name}" for name in SWITCHES} <= set(flags)
