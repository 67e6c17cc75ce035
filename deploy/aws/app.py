"""The CDK app: `python -m deploy.aws.app [FOLDER]` writes the templates."""

import json
import sys
from pathlib import Path
from typing import Any, Final

import aws_cdk as cdk
from deploy.aws.assets import code, layer
from deploy.aws.environments import NAMES, environment_of
from deploy.aws.functions import Archives
from deploy.aws.stack import FeaturesStack

HERE: Final = Path(__file__).parent


def made(archives: Archives, outdir: str | None = None, **context: Any) -> cdk.App:
    """Return the app with a stack for each environment."""
    settings = json.loads((HERE / "cdk.json").read_text())["context"]
    app = cdk.App(outdir=outdir, context={**settings, **context})
    for name in NAMES:
        environment = environment_of(name, app.node.try_get_context(name))
        FeaturesStack(app, environment, archives)
    return app


def main() -> None:
    """Build the archives of the functions, then write the templates."""
    outdir = sys.argv[1] if len(sys.argv) > 1 else None
    made(Archives(code(), layer()), outdir).synth()


if __name__ == "__main__":
    main()
