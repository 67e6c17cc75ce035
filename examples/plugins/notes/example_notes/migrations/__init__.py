"""The revisions of the tables of `notes`."""
