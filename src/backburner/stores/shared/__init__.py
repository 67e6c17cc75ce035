"""What SQLite and PostgreSQL have in common."""
