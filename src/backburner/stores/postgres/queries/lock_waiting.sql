-- Whoever adds to what waits of a capped share counts after all others that did.
SELECT pg_advisory_xact_lock(hashtextextended($1, 0))
