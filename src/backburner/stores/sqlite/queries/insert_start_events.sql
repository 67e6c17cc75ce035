INSERT INTO events (job, n, type, at, data)
SELECT seq, events, 'job.started', started_at,
       '{"attempt":' || attempt || ',"generation":' || generation
       || ',"worker":"' || worker || '"}'
  FROM json_each(?1) AS told CROSS JOIN jobs ON jobs.seq = told.value
