"""The PostgreSQL store, for any number of machines."""
