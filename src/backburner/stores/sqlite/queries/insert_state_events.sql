-- For jobs whose state follows from others': the event has no further data.
INSERT INTO events (job, n, type, at, tenant, "user")
SELECT seq, events, 'job.' || state, ?2, tenant, "user"
  FROM json_each(?1) AS told CROSS JOIN jobs ON jobs.seq = told.value
