"""100 MB in and out, in a process whose memory grows by less than 64 MB."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MEGABYTES = 100
MOST_GROWTH = 64


@pytest.fixture
def folder_url(tmp_path):
    return (tmp_path / "contents").as_uri()


@pytest.mark.thorough
@pytest.mark.parametrize("place", ["folder_url", "s3_url"])
async def test_100_mb_are_streamed_both_ways_in_little_memory(
    request, store_url, place
):
    url = request.getfixturevalue(place)
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.blobs", store_url, url, str(MEGABYTES)),
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    written, _ = await child.communicate()
    told = json.loads(written)

    assert told["is_same"]
    assert told["growth_mb"] < MOST_GROWTH
