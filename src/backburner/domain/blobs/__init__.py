"""Contents that are stored outside a database row."""
