-- The most frequent settlement, success, with only what it needs. Same as settle_jobs.
UPDATE jobs
   SET state = 'succeeded', token = NULL, worker = NULL, output = s.output,
       error = NULL, error_code = NULL, finished_at = ?2, events = events + 1
  FROM (SELECT value ->> 0 AS seq, value ->> 1 AS token, value ->> 2 AS output
          FROM json_each(?1)) AS s
 WHERE jobs.seq = s.seq AND jobs.token = s.token
RETURNING seq, queue
