"""The revisions of `chat`'s tables, in the folder `versions`."""
