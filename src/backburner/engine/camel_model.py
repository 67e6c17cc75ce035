"""A base for values whose JSON names are written in camelCase."""

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class CamelModel(BaseModel):
    """
    A value that is `{"dueDate": …}` in JSON and `due_date` in Python.

    It is also read by the Python names, which programs use. To accept the JSON names
    only, as a request body should: `class Body(CamelModel, populate_by_name=False)`.
    """

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)
