"""What a RabbitMQ server's account of its queues means."""

import pytest

from backburner.brokers.amqp.examination import judged
from backburner.ports.finding import Status

NOW = (3, 10, 8)
QUORUM = {"durable": True, "type": "quorum", "arguments": {"x-queue-type": "quorum"}}
DEAD = {**QUORUM, "name": "jobs-dlq", "arguments": {"x-message-ttl": 604_800_000}}
JOBS = {**QUORUM, "name": "jobs"}


def policy(pattern, priority=0, **definition):
    return {"pattern": pattern, "priority": priority, "definition": definition}


def findings(*queues, policies=(), operators=()):
    return list(judged([*queues, DEAD], [policies, operators], NOW))


def test_quorum_queues_without_policies_are_well():
    [finding] = findings(JOBS, policies=[policy("^other$", **{"max-length": 1})])

    assert Status.PASS is finding.status
    assert finding.message.startswith("1,")


def test_queues_of_others_are_not_looked_at():
    [finding] = findings({**QUORUM, "name": "theirs", "durable": False})

    assert Status.PASS is finding.status


@pytest.mark.parametrize(
    ("trait", "told"),
    [
        ({"durable": False}, "not durable"),
        ({"type": "classic"}, "classic, on one node"),
        ({"arguments": {"x-max-length": 9}}, "it has a maximum length"),
        ({"arguments": {"x-delivery-limit": 20}}, "it has a delivery limit"),
    ],
)
def test_what_a_queue_is_may_lose_messages(trait, told):
    [finding] = findings(JOBS | trait)

    assert (Status.WARN, told) == (finding.status, finding.message)
    assert finding.fix


def test_no_delivery_limit_is_well():
    [finding] = findings(JOBS | {"arguments": {"x-delivery-limit": -1}})

    assert Status.PASS is finding.status


def test_the_policy_of_the_highest_priority_bears_on_a_queue_and_an_operators_too():
    shadowed, bearing = (
        policy("^jo", 1, expires=1),
        policy("obs", 2, **{"max-length": 1}),
    )
    told = findings(
        JOBS,
        policies=[shadowed, bearing],
        operators=[policy(".", **{"message-ttl": 1})],
    )

    assert ["a maximum length", "a message TTL"] == [
        finding.message.removeprefix("it has ") for finding in told
    ]
