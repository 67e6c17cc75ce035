-- The front never goes back: a retried job may be far behind it.
INSERT INTO fronts (queue, priority, front) VALUES (?, ?, ?)
ON CONFLICT (queue, priority) DO UPDATE SET front = excluded.front
 WHERE excluded.front > fronts.front
