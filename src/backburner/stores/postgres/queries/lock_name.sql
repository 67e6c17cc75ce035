-- Locks a name: a share of a queue with a cap, or the id of a reservation.
SELECT pg_advisory_xact_lock(hashtextextended($1, 0))
