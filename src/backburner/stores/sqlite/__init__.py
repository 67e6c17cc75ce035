"""The SQLite store: one file, any number of processes on one machine."""
