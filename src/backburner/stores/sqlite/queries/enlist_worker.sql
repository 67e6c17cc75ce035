INSERT INTO workers (id, host, pid, slots, queues, started_at, draining, beat_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
