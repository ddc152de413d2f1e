"""Every command explains itself."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from mlsearch import __version__
from mlsearch.cli.main import command_line
from mlsearch.search.make import SAMPLERS

CONTRACT = {
    "tune": (
        "--target --trials --max-time --budget --seed --function --store --study -o --json --threads --jobs"
        " --templates --workdir --sampler --surrogate --cache --variants --no-device --debug --quiet"
    ),
    "inspect": "--target --json --threads --templates --variant --debug",
    "space": "--task --json --target --threads --templates --variant --debug",
    "compile": "--spec -o --target --debug",
    "verify": "--spec --json --target --threads --seed --function --debug",
    "records list": "--store --workload --study --debug",
    "records show": "--store --debug",
    "records export": "--store --debug",
    "records import": "--store --debug",
    "bundle export": (
        "-o --target --trials --seed --function --store --study --threads --jobs --templates --sampler --cache --debug"
    ),
    "bundle run": "-o --max-time --device --even-if-busy --debug",
    "bundle import": "-o --target --function --store --study --templates --debug",
    "bundle runner": "-o --debug",
}


def commands(group: click.Group = command_line, prefix: str = "") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{prefix}{name} ")
        else:
            yield prefix + name, command


COMMANDS = dict(commands())


def options(command: click.Command) -> list[click.Option]:
    return [parameter for parameter in command.params if isinstance(parameter, click.Option)]


def test_the_commands_are_those_that_were_promised() -> None:
    assert COMMANDS.keys() == CONTRACT.keys()


@pytest.mark.parametrize("name", COMMANDS)
def test_the_options_are_those_that_were_promised(name: str) -> None:
    spelled = {option.opts[0] for option in options(COMMANDS[name])}
    assert spelled == set(CONTRACT[name].split())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_has_help(name: str) -> None:
    command = COMMANDS[name]
    assert command.help
    assert [option.opts for option in options(command) if not option.help] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_that_may_be_left_out_tells_its_default(name: str) -> None:
    silent = [
        option.opts
        for option in options(COMMANDS[name])
        if not (option.required or option.is_flag or option.show_default)
    ]
    assert silent == []


@pytest.mark.parametrize("name", ["", "tune", "inspect", "space", "compile", "verify", "records", "bundle"])
def test_help_ends_with_examples_one_a_line(name: str) -> None:
    shown = CliRunner().invoke(command_line, [*name.split(), "--help"]).output
    examples = shown[shown.index("Examples:") :].splitlines()[1:]
    assert examples
    assert all(line.startswith("    mlsearch ") for line in examples)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_summary_of_a_command_is_not_cut_off(name: str) -> None:
    assert not COMMANDS[name].get_short_help_str(60).endswith("...")


def test_version_is_one_line() -> None:
    assert CliRunner().invoke(command_line, ["--version"]).output == f"mlsearch {__version__}\n"


def test_the_samplers_to_choose_from_are_those_that_there_are() -> None:
    [kinds] = [option.type for option in dict(commands())["tune"].params if option.name == "sampler"]
    assert isinstance(kinds, click.Choice)
    assert list(kinds.choices) == list(SAMPLERS)
