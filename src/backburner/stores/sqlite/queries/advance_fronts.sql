-- A job that comes back from a retry may be far behind: the front stays where it is.
INSERT INTO fronts (queue, priority, front) VALUES (?, ?, ?)
ON CONFLICT (queue, priority) DO UPDATE SET front = excluded.front
 WHERE excluded.front > fronts.front
