-- One claim at a time for a queue that has limits; other queues do not notice.
SELECT paused, concurrency, rate, per, window_at, started, limited_until, closed
  FROM queues WHERE name = $1 FOR UPDATE
