"""A bucket on the simulated S3 server, for the benchmark and the tests."""

import secrets
from urllib.parse import urlencode

from botocore.session import get_session

KEY = "test"
REGION = "us-east-1"


def made(endpoint: str) -> tuple[str, str]:
    """Make a bucket; return its URL for `BACKBURNER_BLOBS`, and that URL's query."""
    name = f"test-{secrets.token_hex(6)}"
    client = get_session().create_client(
        "s3",
        region_name=REGION,
        endpoint_url=endpoint,
        aws_access_key_id=KEY,
        aws_secret_access_key=KEY,
    )
    client.create_bucket(Bucket=name)
    client.close()
    query = urlencode({"endpoint": endpoint, "region": REGION})
    return f"s3://{KEY}:{KEY}@{name}", query
