-- Sequence values commit out of order. Whoever drew a number up to this maximum had a
-- transaction id below xmax; once xmin has reached that, none of them is still running.
SELECT coalesce((SELECT max(seq) FROM events), 0) AS newest,
       pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS oldest_running,
       pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next_to_run
