"""The help explains each parameter; commands that the dashboard shows exist."""

import re
import shlex

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from backburner.cli import app
from backburner.http import dashboard

SHOWN = re.compile(
    r'command="(backburner [^"]+)"|>(backburner [^<]+)<'
    r"|`[^`<\n]*?(backburner [^`<\n]+)`"
)


def shown_commands():
    """Return the commands in the files of the dashboard; what it inserts is `x`."""
    for path, page in dashboard.pages().items():
        if path.endswith(".js") and "/" not in path:
            for found in SHOWN.findall(page.content.decode()):
                yield re.sub(r"\$\{[^}]*\}", "x", "".join(found))


def parameters(command, name="backburner"):
    for called, found in getattr(command, "commands", {}).items():
        yield from parameters(found, f"{name} {called}")
    for each in command.params:
        yield f"{name} {each.name}", each


def test_each_parameter_has_a_help_text():
    found = dict(parameters(get_command(app)))

    assert 200 < len(found)
    assert [] == [name for name, each in found.items() if not each.help]


def test_arguments_are_written_in_capitals():
    found = dict(parameters(get_command(app)))
    names = {
        name: each.metavar or each.name
        for name, each in found.items()
        if each.param_type_name == "argument"
    }

    assert names
    assert {} == {name: shown for name, shown in names.items() if not shown.isupper()}


@pytest.mark.parametrize("line", sorted(set(shown_commands())))
def test_commands_that_the_dashboard_shows_can_be_run(line):
    _, *words = shlex.split(line)
    command = get_command(app)
    while words and hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    with command.make_context(line, words) as context:
        assert [] == context.args


def test_commands_of_the_dashboard_are_found():
    assert 12 < len(set(shown_commands()))


def commands(command, name=()):
    yield name
    for called, found in getattr(command, "commands", {}).items():
        yield from commands(found, (*name, called))


@pytest.mark.parametrize("name", [*commands(get_command(app))])
def test_the_help_shows_placeholders_and_no_types(name):
    shown = CliRunner().invoke(app, [*name, "--help"], env={"COLUMNS": "80"}).output

    assert "Usage: " in shown
    assert [] == re.findall(r"<(?:bool|str|int|float|path|list).*|\[\[.*", shown)


def test_the_defaults_of_the_address_are_shown():
    shown = CliRunner().invoke(app, ["serve", "--help"], env={"COLUMNS": "200"}).output

    assert "Address to listen on. Default: 127.0.0.1." in shown
    assert "0 selects a free one. Default: 8765." in shown


def groups_with_a_list():
    commands = get_command(app).commands
    return [
        name
        for name, found in commands.items()
        if "list" in getattr(found, "commands", ())
    ]


@pytest.mark.parametrize("name", groups_with_a_list())
def test_a_group_without_a_subcommand_lists(ask, name):
    bare, listed = ask(name), ask(name, "list")
    misplaced = ask(name, "--json", "list")

    # Figures such as the memory of a worker may change in between; rows do not.
    rows = [
        [line.split()[:1] for line in one.stdout.splitlines()] for one in (bare, listed)
    ]
    assert (0, rows[1]) == (bare.returncode, rows[0])
    assert 2 == misplaced.returncode
    assert "write the options after `list`" in misplaced.stderr


def test_the_groups_with_a_list_are_found():
    assert {"batches", "keys", "lanes", "queues"} < {*groups_with_a_list()}
