"""Adds the index to an existing table: `python deploy/aws/add_index.py TABLE`."""

import sys
from typing import Any, Final

import boto3

from backburner_apps.features.aws.items import INDEX, LISTED

KEYS: Final = {"gsi1pk": "HASH", "gsi1sk": "RANGE"}


def index() -> dict[str, Any]:
    """Return the definition of the index, the same as in the stack."""
    keys = [{"AttributeName": name, "KeyType": kind} for name, kind in KEYS.items()]
    kept = {"ProjectionType": "INCLUDE", "NonKeyAttributes": list(LISTED)}
    return {"IndexName": INDEX, "KeySchema": keys, "Projection": kept}


def add_index(table: str) -> None:
    """Let DynamoDB build the index; records can be listed when it is ACTIVE."""
    types = [{"AttributeName": name, "AttributeType": "S"} for name in KEYS]
    boto3.client("dynamodb").update_table(
        TableName=table,
        AttributeDefinitions=types,
        GlobalSecondaryIndexUpdates=[{"Create": index()}],
    )


if __name__ == "__main__":
    if len(sys.argv) != 2:  # noqa: PLR2004 - the program and the table
        sys.exit("usage: python deploy/aws/add_index.py TABLE")
    add_index(sys.argv[1])
    print(f"DynamoDB builds the index {INDEX} of {sys.argv[1]}; see RUNBOOK.md")
