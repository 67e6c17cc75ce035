"""
What the server sends, each shape defined once.

The writers in `http` fill these types, the clients return them, and `http.schemas`
makes the models of OpenAPI from them: the docstring below a field describes it there.
`Annotated[A, B]` is an `A` in Python that OpenAPI describes as `B`. A field that is
`NotRequired` is left out where it has no value.
"""

from datetime import datetime
from typing import Annotated

Time = Annotated[str, datetime]
"""A time by RFC 3339."""
