"""The revisions of the inbox's tables."""
