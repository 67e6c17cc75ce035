"""The store for any number of machines: PostgreSQL."""
