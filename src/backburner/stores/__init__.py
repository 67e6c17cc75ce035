"""The databases: one folder each with the same names, and their shared parts."""
