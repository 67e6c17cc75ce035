-- Of jobs that came to their state by nobody's choice: the event says nothing besides.
INSERT INTO events (job, n, type, at, tenant, "user")
SELECT seq, events, 'job.' || state, ?2, tenant, "user"
  FROM json_each(?1) AS told CROSS JOIN jobs ON jobs.seq = told.value
