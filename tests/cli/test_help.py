"""The help of each command explains each of its parameters."""

from typer.main import get_command

from backburner.cli import app


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
