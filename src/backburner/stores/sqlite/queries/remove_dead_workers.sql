-- The clock counts from the machine's start: a beat from the future is from before a
-- restart, and its worker is gone.
-- Silence counts up to when it was asked: this write may have waited for the lock as
-- long as the beats did.
DELETE FROM workers WHERE beat_at < ?1 - ?2 OR beat_at > ?3
