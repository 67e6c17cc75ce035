import json

from backburner.clock import SystemClock
from backburner.domain.lanes.lane import Lane
from backburner.ports.faults import NoFaults
from backburner.stores.sqlite.store import SqliteStore


async def test_lanes_are_listed(serve, run, tmp_path):
    url = f"sqlite:///{tmp_path}/jobs.db"
    server = serve(BACKBURNER_STORE=url).url
    store = SqliteStore.from_url(url, SystemClock(), NoFaults())
    await store.open()
    await store.declare_lanes([Lane("acme/model", requests=30)])
    await store.close()

    shown = run("lanes", BACKBURNER_URL=server)
    listed = run("lanes", "list", BACKBURNER_URL=server)
    told = run("lanes", "--json", BACKBURNER_URL=server)

    assert "acme/model\topen\t30\t\t0\t0\t\n" == shown.stdout
    assert shown.stdout == listed.stdout
    assert ("acme/model", 30) == (
        json.loads(told.stdout)["name"],
        json.loads(told.stdout)["requests"],
    )
