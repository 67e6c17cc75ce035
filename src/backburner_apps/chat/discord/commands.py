"""The slash commands in the format of Discord's API."""

from typing import Any, Final

CHAT: Final = "chat"
FORGET: Final = "forget"
PERSONALITY: Final = "personality"
MESSAGE: Final = "message"
ATTACHMENT: Final = "attachment"

MAX_MESSAGE: Final = 6_000
"""Maximum length of a user's message: Discord's own limit for an option."""
MAX_PERSONALITY: Final = 200

CHAT_INPUT: Final = 1
STRING: Final = 3
ATTACHMENT_TYPE: Final = 11

_PERSONALITY: Final[dict[str, Any]] = {
    "type": STRING,
    "name": PERSONALITY,
    "description": "The id or the name of the personality",
    "required": True,
    "min_length": 1,
    "max_length": MAX_PERSONALITY,
}
COMMANDS: Final[list[dict[str, Any]]] = [
    {
        "type": CHAT_INPUT,
        "name": CHAT,
        "description": "Ask a personality",
        "options": [
            _PERSONALITY,
            {
                "type": STRING,
                "name": MESSAGE,
                "description": "What you want to say",
                "required": True,
                "min_length": 1,
                "max_length": MAX_MESSAGE,
            },
            {
                "type": ATTACHMENT_TYPE,
                "name": ATTACHMENT,
                "description": "A picture or a recording, at most 25 MB",
                "required": False,
            },
        ],
    },
    {
        "type": CHAT_INPUT,
        "name": FORGET,
        "description": "Delete what a personality remembers about you",
        "options": [_PERSONALITY],
    },
]
