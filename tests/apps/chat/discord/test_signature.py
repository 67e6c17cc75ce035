"""Signatures of Discord: checked as npm's discord-interactions and PyNaCl do."""

import json

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from backburner_apps.chat.discord.signature import Verifier, is_fresh
from tests.apps.chat.discord import node
from tests.apps.chat.discord.payloads import KEY, PUBLIC_KEY, a_command, signed

AT = 1_700_000_000
OTHER = SigningKey(bytes(range(1, 33)))
VERIFY = """
const { verifyKey } = require("discord-interactions");
let text = "";
process.stdin.on("data", (chunk) => { text += chunk; });
process.stdin.on("end", async () => {
  const found = [];
  for (const [signature, timestamp, body, key] of JSON.parse(text)) {
    const bytes = Buffer.from(body, "hex");
    let accepted = false;
    try { accepted = await verifyKey(bytes, signature, timestamp, key); } catch {}
    found.push(accepted);
  }
  console.log(JSON.stringify(found));
});
"""


def cases():
    """Yield what to verify: the good, and each way in which it can be spoilt."""
    body, headers = signed(a_command(1, message="hi 🦊"), AT)
    signature = headers["X-Signature-Ed25519"]
    stamp = str(AT)
    _, by_other = signed(body, AT, key=OTHER)
    flipped = f"{int(signature[0], 16) ^ 1:x}{signature[1:]}"
    yield "good", signature, stamp, body
    yield "large letters", signature.upper(), stamp, body
    yield "empty body", KEY.sign(stamp.encode()).signature.hex(), stamp, b""
    yield "changed body", signature, stamp, body + b" "
    yield "changed time", signature, str(AT + 1), body
    yield "moved digit", signature, stamp[:-1], stamp[-1:].encode() + body[1:]
    yield "one bit", flipped, stamp, body
    yield "another key", by_other["X-Signature-Ed25519"], stamp, body
    yield "short", signature[:-2], stamp, body
    yield "no hexadecimal", "z" * 128, stamp, body
    yield "empty", "", stamp, body
    yield "zeros", "0" * 128, stamp, body


CASES = {name: case for name, *case in cases()}
GOOD = {"good", "large letters", "empty body"}


def accepted():
    verifier = Verifier(PUBLIC_KEY)
    return {name for name, case in CASES.items() if verifier.accepts(*case)}


def test_only_unchanged_requests_of_discord_are_accepted():
    assert GOOD == accepted()


def test_npm_discord_interactions_judges_the_same():
    wanted = [(s, at, body.hex(), PUBLIC_KEY) for s, at, body in CASES.values()]
    ran = node.run("-e", VERIFY, value=wanted)
    assert 0 == ran.returncode, ran.stderr
    judged = dict(zip(CASES, json.loads(ran.stdout), strict=True))
    assert GOOD == {name for name, is_good in judged.items() if is_good}


def test_pynacl_judges_the_same():
    def accepts(signature, timestamp, body):
        try:
            VerifyKey(bytes.fromhex(PUBLIC_KEY)).verify(
                timestamp.encode() + body, bytes.fromhex(signature)
            )
        except (BadSignatureError, ValueError):
            return False
        return True

    assert GOOD == {name for name, case in CASES.items() if accepts(*case)}


def test_signatures_of_another_library_are_accepted():
    key = Ed25519PrivateKey.from_private_bytes(bytes(KEY))
    signature = key.sign(b"12body").hex()
    assert Verifier(PUBLIC_KEY).accepts(signature, "12", b"body")


@pytest.mark.parametrize("key", ["", "ab", "zz" * 32])
def test_a_key_that_is_none_is_refused(key):
    with pytest.raises(ValueError, match=r"."):
        Verifier(key)


@pytest.mark.parametrize(
    ("timestamp", "is_good"),
    [
        (str(AT), True),
        (str(AT - 300), True),
        (str(AT + 300), True),
        (str(AT - 301), False),
        (str(AT + 301), False),
        ("", False),
        ("-1", False),
        (f" {AT}", False),
        ("1e9", False),
        ("\u0661\u0667" + "\u0660" * 8, False),
        ("9" * 400, False),
    ],
)
def test_a_timestamp_is_fresh_for_five_minutes(timestamp, is_good):
    assert is_good == is_fresh(timestamp, AT * 1000 + 999)
