-- Allows one claim at a time for a queue with limits; other queues are not affected.
SELECT paused, concurrency, rate, per, window_at, started, limited_until, closed
  FROM queues WHERE name = $1 FOR UPDATE
