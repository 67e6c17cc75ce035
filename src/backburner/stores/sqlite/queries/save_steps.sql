-- A key that is stored keeps its first result; it is returned as if it were new.
INSERT INTO step_results (job, key, kind, name, epoch, at, result)
SELECT jobs.seq, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6,
       value ->> 7
  FROM json_each(?1)
  JOIN jobs ON jobs.seq = value ->> 0 AND jobs.token = value ->> 1
 WHERE TRUE
ON CONFLICT (job, key) DO UPDATE SET key = excluded.key
RETURNING job, key
