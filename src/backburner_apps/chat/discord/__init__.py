"""
The Discord form of `chat`: interactions in, edits of the reply out.

Discord calls `POST /discord/interactions` and expects an answer within three seconds.
The route stores the work and answers at once; jobs edit the reply afterwards.
"""
