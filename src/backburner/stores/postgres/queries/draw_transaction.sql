-- A new transaction id, above all that are in use now. It writes nothing.
SELECT pg_current_xact_id()::text::bigint
