"""How rows of jobs are converted."""

import sys

from backburner.stores.shared import rows


def test_fields_are_passed_by_names_that_python_compares_by_identity():
    """*Before: SQLAlchemy's own type of text, with which a job took twice as long.*"""
    names = (*rows._NAMES, *rows._LISTED_NAMES)

    assert {str} == {type(name) for name in names}
    assert [] == [name for name in names if sys.intern(name) is not name]
