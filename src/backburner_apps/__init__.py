"""The rooms: applications that live in the house. They use its public door only."""
