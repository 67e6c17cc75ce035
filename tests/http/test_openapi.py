"""The description of the API is true of it."""

import pytest
from fastapi.routing import APIRoute

from backburner.http import problems


@pytest.fixture
async def described(server):
    return (await server.client.get("/openapi.json")).json()


def operations(described):
    """Return every operation with its path and method."""
    return [
        (path, method, told)
        for path, methods in described["paths"].items()
        for method, told in methods.items()
    ]


def references(value):
    """Return every `$ref` in a document."""
    if isinstance(value, dict):
        own = [value["$ref"]] if "$ref" in value else []
        return own + [ref for inner in value.values() for ref in references(inner)]
    if isinstance(value, list):
        return [ref for inner in value for ref in references(inner)]
    return []


async def test_every_route_of_the_api_is_described(server, described):
    routes = {
        (route.path_format, method.lower())
        for route in server.app.routes
        if isinstance(route, APIRoute) and route.include_in_schema
        for method in route.methods
    }

    assert routes == {(path, method) for path, method, _ in operations(described)}


async def test_every_operation_has_a_name_and_a_summary(described):
    names = [told["operationId"] for _, _, told in operations(described)]

    assert len(names) == len(set(names))
    assert all(told["summary"] for _, _, told in operations(described))


async def test_every_reference_leads_somewhere(described):
    schemas = {f"#/components/schemas/{n}" for n in described["components"]["schemas"]}

    assert set(references(described)) <= schemas


async def test_every_error_is_described_as_a_problem(described):
    errors = [
        list(answer["content"])
        for _, _, told in operations(described)
        for status, answer in told["responses"].items()
        if status >= "400"
    ]

    assert [[problems.MEDIA_TYPE]] * len(errors) == errors


async def test_the_bodies_that_routes_read_have_schemas_and_examples(described):
    asked = {
        told["operationId"]: told["requestBody"]["content"]["application/json"]
        for _, _, told in operations(described)
        if "application/json" in told.get("requestBody", {}).get("content", ())
    }
    schemas = described["components"]["schemas"]

    assert {"submit_job", "retry_dead_letters", "create_key"} <= set(asked)
    assert "#/components/schemas/JobRequest" == asked["submit_job"]["schema"]["$ref"]
    assert schemas["JobRequest"]["additionalProperties"] is False
    assert ["capability", "input"] == schemas["JobRequest"]["required"]
    assert schemas["JobRequest"]["examples"]
    assert schemas["RetryRequest"]["examples"]
    assert schemas["KeyRequest"]["examples"]


async def test_every_operation_but_the_public_names_its_scope(described):
    open_ = {path for path, _, told in operations(described) if "security" not in told}
    wanted = [
        told["security"] for _, _, told in operations(described) if "security" in told
    ]
    refusals = [
        {"401", "403"} <= told["responses"].keys()
        for _, _, told in operations(described)
        if "security" in told
    ]

    assert open_ <= {
        *("/livez", "/readyz", "/v1/session"),
        *("/v1/blobs/{blob_id}", "/v1/files/{file_id}"),
    }
    ways = {tuple(name for need in one for name in need) for one in wanted}
    assert {("key", "session"), ("key", "session", "token")} == ways
    assert {True} == set(refusals)


async def test_the_example_of_a_submit_works(server, described):
    examples = described["components"]["schemas"]["JobRequest"]["examples"]
    answers = [await server.client.post("/v1/jobs", json=ask) for ask in examples]

    assert [202] * len(examples) == [answer.status_code for answer in answers]


async def test_nothing_optional_is_demanded_by_generated_clients(described):
    schemas = described["components"]["schemas"]
    asked = [name for name in schemas if name.endswith("Request")]
    demanded = {
        f"{name}.{field}"
        for name in asked
        for field, told in schemas[name]["properties"].items()
        if "default" in told
    }
    required = schemas["JobRequest"]["required"]

    assert {"JobRequest", "FlowRequest", "BatchRequest", "StepRequest"} <= {*asked}
    assert set() == demanded
    assert ["capability", "input"] == required
    told = schemas["JobRequest"]["properties"]["priority"]["description"]
    assert told.endswith("Default: 0.")
