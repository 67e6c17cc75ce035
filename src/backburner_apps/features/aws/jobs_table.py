"""The calls of the DynamoDB table of job records; errors are those of AWS."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from boto3.dynamodb.conditions import Attr, ConditionBase
from boto3.dynamodb.types import TypeDeserializer
from botocore.exceptions import BotoCoreError, ClientError

from backburner_apps.features.aws.aws_errors import LOST, code_of
from backburner_apps.features.aws.changes import update_of
from backburner_apps.features.aws.items import INDEX, LISTED, Item, key_of
from backburner_apps.features.core.records import JobStatus

MAX_LISTED: Final = 1_000
FAILURES: Final = (ClientError, BotoCoreError)
"""The errors that a call raises."""


@dataclass(frozen=True, slots=True)
class JobsTable:
    """Reads and writes the items of jobs."""

    table: Any
    """A `Table` of boto3."""

    @property
    def name(self) -> str:
        """The table's name."""
        return str(self.table.name)

    def put(self, item: Item) -> None:
        """Store a new item."""
        try:
            self.table.put_item(
                Item=dict(item),
                ConditionExpression=Attr("pk").not_exists(),
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except ClientError as error:
            # boto3 repeats a call whose answer was lost: then the item is our own.
            if old_item(error).get("created_at") != item["created_at"]:
                raise

    def put_keyed(self, item: Item, key: Item, now: int) -> None:
        """Store a new item and the item of its idempotency key in one transaction."""
        is_free = "attribute_not_exists(pk) OR #ttl <= :now"
        puts = [
            {"Item": dict(item), "ConditionExpression": "attribute_not_exists(pk)"},
            {
                "Item": dict(key),
                "ConditionExpression": is_free,
                "ExpressionAttributeNames": {"#ttl": "ttl"},
                "ExpressionAttributeValues": {":now": now},
            },
        ]
        self.table.meta.client.transact_write_items(
            TransactItems=[{"Put": {"TableName": self.name, **put}} for put in puts]
        )

    def get_key(self, key: Item) -> Item:
        """Return the stored item of an idempotency key; empty if there is none."""
        primary = {name: key[name] for name in ("pk", "sk")}
        answer = self.table.get_item(Key=primary, ConsistentRead=True)
        item: Item = answer.get("Item", {})
        return item

    def update(
        self, job_id: str, sets: Mapping[str, Any], condition: ConditionBase
    ) -> Item:
        """Change an item if a condition holds; return the changed item."""
        answer = self.table.update_item(
            Key=key_of(job_id),
            **update_of(sets),
            ConditionExpression=Attr("pk").exists() & condition,
            ReturnValues="ALL_NEW",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
        item: Item = answer["Attributes"]
        return item

    def mark_sent(self, job_id: str) -> None:
        """Remove the lease of the submitting function, unless a worker has begun."""
        try:
            self.table.update_item(
                Key=key_of(job_id),
                UpdateExpression="REMOVE lease_until",
                ConditionExpression=Attr("status").eq(JobStatus.PENDING),
            )
        except ClientError as error:
            if code_of(error) != LOST:
                raise

    def get(self, job_id: str, *more: str) -> Item | None:
        """Return an item's listed attributes and `more`, by a consistent read."""
        names = {f"#{name}": name for name in (*LISTED, *more)}
        answer = self.table.get_item(
            Key=key_of(job_id),
            ConsistentRead=True,
            ProjectionExpression=", ".join(names),
            ExpressionAttributeNames=names,
        )
        item: Item | None = answer.get("Item")
        return item

    def query(self, key: ConditionBase) -> list[Item]:
        """Return items by the index, newest first."""
        items: list[Item] = []
        start: dict[str, Any] = {}
        while len(items) < MAX_LISTED:
            page = self.table.query(
                IndexName=INDEX,
                KeyConditionExpression=key,
                ScanIndexForward=False,
                Limit=MAX_LISTED - len(items),
                **start,
            )
            items += page["Items"]
            if "LastEvaluatedKey" not in page:
                break
            start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}
        return items


def old_item(error: ClientError) -> dict[str, Any]:
    """Return the item that failed a condition; empty if there is none."""
    read = TypeDeserializer().deserialize
    found: Mapping[str, Any] = error.response.get("Item", {})
    return {name: read(value) for name, value in found.items()}
