-- By the server's clock alone: a node whose clock is wrong buries nobody early.
DELETE FROM workers
 WHERE beat_at < (extract(epoch FROM clock_timestamp()) * 1000)::bigint - $1
