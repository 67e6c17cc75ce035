"""The revisions of the tables of `tasks`."""
