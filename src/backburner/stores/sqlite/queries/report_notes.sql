-- Only the holder of a running job reports: a note with a used number is a repeat.
UPDATE jobs SET progress = coalesce(s.progress, jobs.progress), events = events + 1
  FROM (SELECT value ->> 0 AS seq, value ->> 1 AS token, value ->> 2 AS n,
               value ->> 3 AS progress
          FROM json_each(?1)) AS s
 WHERE jobs.seq = s.seq AND jobs.token = s.token AND jobs.events = s.n - 1
RETURNING seq
