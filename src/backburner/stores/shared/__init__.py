"""The parts that the SQLite and PostgreSQL stores share."""
