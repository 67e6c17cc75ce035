SELECT paused, concurrency, rate, per, window_at, started, limited_until, closed
  FROM queues WHERE name = ?
