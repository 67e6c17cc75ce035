"""The embedded store: one file, any number of processes on one machine."""
