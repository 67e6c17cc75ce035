"""Work over a message broker: publish, receive, dead letters."""
