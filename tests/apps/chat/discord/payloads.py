"""Requests as Discord sends them, signed as Discord signs them."""

import json

from nacl.signing import SigningKey

APPLICATION = "1172942837463920640"
CHANNEL = "41771983423143937"
GUILD = "290926798626357999"
USER = "53908232506183680"
KEY = SigningKey(bytes(range(32)))
PUBLIC_KEY = bytes(KEY.verify_key).hex()
IMAGE = {
    "id": "900000000000000001",
    "filename": "cat.png",
    "size": 1000,
    "url": "https://cdn.discordapp.com/attachments/1/2/cat.png?ex=1&is=2&hm=3",
    "proxy_url": "https://media.discordapp.net/attachments/1/2/cat.png",
    "content_type": "image/png",
}
PING = {
    "id": "1",
    "application_id": APPLICATION,
    "type": 1,
    "token": "ping-token",
    "version": 1,
    "app_permissions": "0",
    "entitlements": [],
    "authorizing_integration_owners": {},
    "attachment_size_limit": 10485760,
}


def a_user(user=USER):
    return {
        "id": user,
        "username": "mason",
        "discriminator": "0",
        "global_name": "Mason",
        "avatar": None,
    }


def a_command(number, *, name="chat", attachment=None, user=USER, **options):
    """Return an interaction in a server: `/chat` with its options."""
    given = [{"name": n, "type": 3, "value": v} for n, v in options.items()]
    data = {"id": "771825006014889984", "name": name, "type": 1, "options": given}
    if attachment is not None:
        value = attachment["id"]
        given.append({"name": "attachment", "type": 11, "value": value})
        data["resolved"] = {"attachments": {value: attachment}}
    return {
        "id": str(number),
        "application_id": APPLICATION,
        "type": 2,
        "token": f"token-{number}",
        "version": 1,
        "data": data,
        "guild_id": GUILD,
        "guild": {"id": GUILD, "locale": "en-US", "features": []},
        "guild_locale": "en-US",
        "locale": "en-US",
        "channel": {"id": CHANNEL, "type": 0, "name": "talk"},
        "channel_id": CHANNEL,
        "member": {
            "user": a_user(user),
            "roles": [],
            "joined_at": "2020-01-01T00:00:00.000000+00:00",
            "deaf": False,
            "mute": False,
            "flags": 1,
            "permissions": "0",
        },
        "app_permissions": "0",
        "entitlements": [],
        "authorizing_integration_owners": {"0": GUILD},
        "attachment_size_limit": 10485760,
    }


def signed(payload, at, *, key=KEY):
    """Return the body and the headers of a signed request, `at` in seconds."""
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    signature = key.sign(str(at).encode() + body).signature.hex()
    return body, {
        "X-Signature-Ed25519": signature,
        "X-Signature-Timestamp": str(at),
        "Content-Type": "application/json",
    }
