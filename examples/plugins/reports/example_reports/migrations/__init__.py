"""The revisions of the tables of `reports`."""
