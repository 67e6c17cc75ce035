"""The receiver of the webhooks guide takes what is signed, once."""

import json
import re
import sys
from pathlib import Path

import httpx2
import pytest

from backburner.clock import SystemClock
from backburner.domain.webhooks import webhook
from tests import warm

GUIDE = (Path(__file__).parents[2] / "docs" / "webhooks.md").read_text()
SECONDS = 60
SECRET, OLD, FOREIGN = (webhook.secret(b"m" * 32, f"ep_{n}", 1) for n in range(3))
BODY = json.dumps({"type": "job.succeeded", "data": {"id": "job_7"}}).encode()


def signed(secret, message="msg_1"):
    now = SystemClock().now() // 1000
    return {
        "webhook-id": message,
        "webhook-timestamp": str(now),
        "webhook-signature": webhook.sign([secret], message, now, BODY),
    }


@pytest.fixture
def receiver(tmp_path):
    """Run the program of the guide."""
    program = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)[0]
    (tmp_path / "receiver.py").write_text(program)
    with warm.Popen(
        [sys.executable, "-m", "uvicorn", "receiver:app", "--port", "0"],
        cwd=tmp_path,
        env={"WEBHOOK_SECRETS": f"{SECRET},{OLD}"},
        stdout=warm.PIPE,
        stderr=warm.PIPE,
        text=True,
    ) as process:
        found = (re.search(r"running on (\S+)", line) for line in process.stderr)
        url = next(match[1] for match in found if match)
        yield process, f"{url}/hooks"
        process.terminate()
        process.communicate(timeout=SECONDS)


def test_the_receiver_of_the_guide_takes_what_is_signed_and_each_once(receiver):
    process, url = receiver
    posted = [
        httpx2.post(url, content=BODY, headers=headers, trust_env=False).status_code
        for headers in (
            signed(SECRET),
            signed(SECRET),
            signed(OLD, "msg_2"),
            signed(FOREIGN, "msg_3"),
            {},
        )
    ]
    process.terminate()
    told, _ = process.communicate(timeout=SECONDS)

    assert [204, 204, 204, 400, 400] == posted
    assert 2 == told.count("job.succeeded job_7")
