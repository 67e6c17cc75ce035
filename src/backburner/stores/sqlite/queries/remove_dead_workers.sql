-- The clock counts from the machine's start: a heartbeat from the future is from before a
-- restart, and its worker is gone. The time of the request counts, not that of this write,
-- which may have waited for the lock as long as the heartbeats did.
DELETE FROM workers WHERE beat_at < ?1 - ?2 OR beat_at > ?3
