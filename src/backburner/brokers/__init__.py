"""Message brokers, by the scheme of their URL."""
