"""Background work: schedules, clean-up, erasure, translation of events."""
