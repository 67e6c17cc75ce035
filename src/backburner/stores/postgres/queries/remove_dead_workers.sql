-- By the server's clock alone: a node whose clock is wrong removes nobody early. One
-- that claims at this moment is left for the next look: nobody is waited for.
DELETE FROM workers
 WHERE id = ANY (ARRAY (
   SELECT id FROM workers
    WHERE beat_at < (extract(epoch FROM clock_timestamp()) * 1000)::bigint - $1
    ORDER BY id FOR UPDATE SKIP LOCKED
 ))
