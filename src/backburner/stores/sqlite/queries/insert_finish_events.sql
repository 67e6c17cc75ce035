INSERT INTO events (job, n, type, at)
SELECT seq, events, 'job.succeeded', finished_at
  FROM jobs WHERE seq IN (SELECT value FROM json_each(?1))
