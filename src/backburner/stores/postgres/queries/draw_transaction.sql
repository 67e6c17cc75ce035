-- Assigned to nobody before, so above all that run now. It writes nothing to wait for.
SELECT pg_current_xact_id()::text::bigint
