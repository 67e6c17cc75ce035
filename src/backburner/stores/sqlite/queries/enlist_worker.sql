INSERT INTO workers (id, host, pid, slots, queues, started_at, beat_at)
VALUES (?, ?, ?, ?, ?, ?, ?)
