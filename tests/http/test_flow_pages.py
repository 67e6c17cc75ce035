"""The graph of a flow and pages of its steps over HTTP."""

import pytest

from backburner.http.schemas.groups import FlowGraphView, StepPage

PAGES = [f"page {number}" for number in range(9)]
STEPS = [
    {"name": "first", "capability": "demo.echo", "input": {}},
    *(
        {"name": page, "capability": "demo.echo", "needs": ["first"], "input": {}}
        for page in PAGES
    ),
    {
        "name": "bad",
        "capability": "demo.fail",
        "needs": ["first"],
        "input": {"times": 1, "error": "permanent"},
    },
    {
        "name": "last",
        "capability": "demo.echo",
        "needs": [*PAGES, {"step": "bad", "otherwise": "continue"}],
        "input": {},
    },
]


async def get(server, path, **headers):
    response = await server.client.get(path, headers=headers)
    assert 200 == response.status_code, response.text
    return response.json()


@pytest.fixture
async def flow(server):
    """A flow that has ended."""
    response = await server.client.post("/v1/flows", json={"steps": STEPS})
    return await server.ended(response.json())


async def listed(server, path):
    """Return the names on each page of a list."""
    pages = []
    while path:
        response = await server.client.get(path)
        assert StepPage.model_validate(response.json())
        pages.append([step["name"] for step in response.json()["items"]])
        path = response.links.get("next", {}).get("url")
    return pages


async def test_a_graph_shows_alike_steps_as_one_with_their_counts(server, flow):
    graph = await get(server, f"/v1/flows/{flow['id']}/graph")
    nodes, links = graph["nodes"], graph["links"]

    assert FlowGraphView.model_validate(graph)
    whole = {name: flow[name] for name in flow if name != "steps"}
    assert whole == graph["flow"]
    assert [
        (0, 1, {"succeeded": 1}, "first"),
        (1, 9, {"succeeded": 9}, "page 0"),
        (1, 1, {"failed": 1}, "bad"),
        (2, 1, {"succeeded": 1}, "last"),
    ] == [(n["layer"], n["size"], n["counts"], n["step"]["name"]) for n in nodes]
    assert [
        (0, 1, "cancel"),
        (0, 2, "cancel"),
        (1, 3, "cancel"),
        (2, 3, "continue"),
    ] == [(link["source"], link["target"], link["otherwise"]) for link in links]
    steps = {step["name"]: step for step in flow["steps"]}
    assert [steps[node["step"]["name"]] for node in nodes] == [
        node["step"] for node in nodes
    ]


async def test_a_graph_follows_the_states_of_its_steps(server):
    held = [
        {"name": "held", "capability": "test.wait", "input": {}},
        {"name": "then", "capability": "demo.echo", "needs": ["held"], "input": {}},
    ]
    made = (await server.client.post("/v1/flows", json={"steps": held})).json()
    path = f"/v1/flows/{made['id']}/graph"
    before = await get(server, path)
    server.release.set()
    await server.ended(made)
    after = await get(server, path)

    assert {"blocked": 1} == before["nodes"][1]["counts"]
    assert [{"succeeded": 1}] * 2 == [node["counts"] for node in after["nodes"]]
    assert "succeeded" == after["flow"]["state"]


async def test_steps_are_listed_page_by_page_by_state_and_node(server, flow):
    path = f"/v1/flows/{flow['id']}/steps"
    [first] = (await get(server, f"{path}?limit=1"))["items"]

    assert [["first", *PAGES[:4]], [*PAGES[4:]], ["bad", "last"]] == await listed(
        server, f"{path}?limit=5"
    )
    assert [["bad"]] == await listed(server, f"{path}?state=failed")
    assert [[]] == await listed(server, f"{path}?state=queued")
    assert [PAGES[:8], PAGES[8:]] == await listed(server, f"{path}?node=1&limit=8")
    assert [[]] == await listed(server, f"{path}?node=1&state=failed")
    assert flow["steps"][0] == first


@pytest.mark.parametrize(
    "query", ["node=4", "node=-1", "state=lost", "cursor=x", "limit=0", "name=a"]
)
async def test_a_wrong_query_is_refused(server, flow, query):
    response = await server.client.get(f"/v1/flows/{flow['id']}/steps?{query}")

    assert 422 == response.status_code
    [error] = response.json()["errors"]
    assert f"query.{query.partition('=')[0]}" == error["path"]


@pytest.mark.parametrize("part", ["graph", "steps"])
async def test_nobody_sees_the_flow_of_somebody_else(serve, part):
    server = await serve(keyed=True)
    ann, bob, other = [
        server.shown(await server.key(tenant, user=user))
        for tenant, user in (("acme", "ann"), ("acme", "bob"), ("other", "ann"))
    ]
    sent = await server.client.post("/v1/flows", json={"steps": STEPS}, headers=ann)
    path = f"{sent.json()['links']['self']}/{part}"
    answers = [
        await server.client.get(path, headers=headers) for headers in (ann, bob, other)
    ]

    assert [200, 404, 404] == [answer.status_code for answer in answers]
