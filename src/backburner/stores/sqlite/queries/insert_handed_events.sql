-- These jobs were queued for an instant only; the event of their start is inserted apart.
INSERT INTO events (job, n, type, at, tenant, "user")
SELECT seq, events - 1, 'job.queued', ready_at, tenant, "user"
  FROM json_each(?1) AS told CROSS JOIN jobs ON jobs.seq = told.value
