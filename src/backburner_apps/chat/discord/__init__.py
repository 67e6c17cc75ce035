"""
Connects `chat` to Discord: receives interactions and edits replies.

Discord calls `POST /discord/interactions` and expects an answer within three seconds.
The route stores a job and answers immediately; jobs edit the reply later.
"""
