"""Who sees the stack of a failed attempt over HTTP."""

from backburner import Context, capability


@capability("careless", queue="demo", max_attempts=1)
async def careless(_ctx: Context, _value: dict[str, int]) -> None:
    raise KeyError("missing")


async def shown_to(server, key, job_id):
    """Return what a key is shown of a failed job, by each way to it."""
    headers = {} if key is None else server.shown(key)
    found = []
    for path in (f"/v1/jobs/{job_id}", f"/v1/dead-letters/{job_id}"):
        answer = await server.client.get(path, headers=headers)
        assert 200 == answer.status_code, answer.text
        found.append(answer.json()["attempts"][0].get("trace"))
    return found


async def failed(serve):
    """Return a server, keys of a user and an operator, and what a submit answered."""
    server = await serve(keyed=True, capabilities=[careless])
    user = await server.key("acme", "jobs:read", "jobs:write", "dead-letters:read")
    operator = await server.key("acme", "jobs:read", "dead-letters:read", "tenant:read")
    asked = {"capability": "careless", "input": {}}
    answer = await server.client.post(
        "/v1/jobs", json=asked, headers=server.shown(user, Prefer="wait=30")
    )
    return server, user, operator, answer


async def test_a_user_sees_no_stack_and_an_operator_does(serve):
    server, user, operator, answer = await failed(serve)
    job_id = answer.json()["id"]
    events = await server.client.get(
        f"/v1/jobs/{job_id}/events", headers=server.shown(operator)
    )
    for_user = await shown_to(server, user, job_id)
    for_operator = await shown_to(server, operator, job_id)

    assert "trace" not in answer.json()["attempts"][0]
    assert [None, None] == for_user
    assert all("in careless" in trace for trace in for_operator)
    assert "in careless" not in events.text


async def test_a_developer_sees_the_stack(serve):
    server = await serve(capabilities=[careless])
    job = await server.ended(await server.submit("careless", None))

    assert all(
        "in careless" in trace for trace in await shown_to(server, None, job["id"])
    )


async def test_the_etag_tells_whether_the_stack_is_shown(serve):
    server, user, operator, answer = await failed(serve)
    path = answer.headers["Location"]

    async def ask(key, **more):
        return await server.client.get(path, headers=server.shown(key, **more))

    without = (await ask(user)).headers["ETag"]
    same = await ask(user, **{"If-None-Match": without})
    whole = await ask(operator, **{"If-None-Match": without})

    assert 304 == same.status_code
    assert 200 == whole.status_code
    assert "in careless" in whole.json()["attempts"][0]["trace"]
    assert without != whole.headers["ETag"]
