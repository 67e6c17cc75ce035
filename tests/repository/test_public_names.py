"""The public package: its names, and how little an import of it loads."""

import subprocess
import sys

import backburner

LOOK = """
import sys, backburner, backburner.client
print({"fastapi", "sqlalchemy", "alembic", "uvicorn"} & set(sys.modules))
"""


def test_the_names_are_sorted_and_are_all_that_is_public():
    public = {
        name
        for name, value in vars(backburner).items()
        if not name.startswith("_") and type(value).__name__ != "module"
    }

    assert sorted(public) == sorted(backburner.__all__)
    assert sorted(backburner.__all__) == backburner.__all__


def test_opening_it_loads_neither_a_web_framework_nor_a_database():
    looked = subprocess.run(  # noqa: S603 - our own line
        [
            sys.executable,
            "-c",
            LOOK,
        ],
        capture_output=True,
        text=True,
        check=True,
    )

    assert "set()" == looked.stdout.strip()
