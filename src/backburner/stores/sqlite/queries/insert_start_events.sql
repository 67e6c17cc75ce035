INSERT INTO events (job, n, type, at, data)
SELECT seq, events, 'job.started', started_at,
       '{"attempt":' || attempt || ',"generation":' || generation
       || ',"worker":"' || worker || '"}'
  FROM jobs WHERE seq IN (SELECT value FROM json_each(?1))
