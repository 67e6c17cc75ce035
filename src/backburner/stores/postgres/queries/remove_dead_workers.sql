-- By the server's clock only, so that a machine with a wrong clock removes nobody early.
-- A worker that is claiming at this moment is skipped.
DELETE FROM workers
 WHERE id = ANY (ARRAY (
   SELECT id FROM workers
    WHERE beat_at < (extract(epoch FROM clock_timestamp()) * 1000)::bigint - $1
    ORDER BY id FOR UPDATE SKIP LOCKED
 ))
