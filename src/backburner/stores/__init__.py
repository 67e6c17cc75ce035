"""One folder per database, the same names inside; the tables and migrations of all."""
