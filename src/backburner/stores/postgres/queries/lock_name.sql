-- By a name: a share whose queue has a cap, or a reservation's id.
SELECT pg_advisory_xact_lock(hashtextextended($1, 0))
