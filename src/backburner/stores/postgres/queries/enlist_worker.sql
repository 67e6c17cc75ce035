INSERT INTO workers (id, host, pid, slots, queues, started_at, draining, beat_at)
VALUES ($1, $2, $3, $4, $5, $6, $7,
        (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
