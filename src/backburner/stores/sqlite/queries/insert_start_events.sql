INSERT INTO events (job, n, type, at, tenant, "user", data)
SELECT seq, events, 'job.started', started_at, tenant, "user",
       '{"attempt":' || attempt || ',"generation":' || generation
       || ',"worker":"' || worker || '"}'
  FROM json_each(?1) AS told CROSS JOIN jobs ON jobs.seq = told.value
