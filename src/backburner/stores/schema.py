"""Checks that a database has the schema that this release needs."""

from backburner.ports.finding import Finding, Status
from backburner.stores.migrations import HEAD


def judged(version: str | None) -> Finding:
    """Say what a schema's version means; none is made at the first start."""
    if version in {None, HEAD}:
        return Finding(
            Status.PASS, "schema", version or "it is created at the first start"
        )
    message = f"{version}, this release needs {HEAD}"
    return Finding(Status.FAIL, "schema", message, "run `backburner migrate`")
