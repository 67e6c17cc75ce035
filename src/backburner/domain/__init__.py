"""Values and decisions, without I/O, clock, random numbers, logging or libraries."""
