-- The token is the fence: NULL unless the job runs, and never used twice.
UPDATE jobs
   SET state = s.state, token = NULL, worker = NULL, output = s.output,
       error = s.error, error_code = s.code, fingerprint = s.fingerprint,
       run_at = iif(s.state = 'waiting', s.run_at, coalesce(s.run_at, jobs.run_at)),
       wait = s.wait, ready_at = coalesce(s.run_at, s.at),
       attempt = coalesce(s.attempt, jobs.attempt),
       crashes = coalesce(s.crashes, jobs.crashes),
       throttled = coalesce(s.throttled, jobs.throttled), finished_at = s.finished_at,
       events = events + 1
  FROM (SELECT value ->> 0 AS seq, value ->> 1 AS token, value ->> 2 AS state,
               value ->> 3 AS at, value ->> 4 AS finished_at, value ->> 5 AS output,
               value ->> 6 AS error, value ->> 7 AS code, value ->> 8 AS fingerprint,
               value ->> 9 AS run_at, value ->> 10 AS attempt,
               value ->> 11 AS crashes, value ->> 12 AS throttled,
               value ->> 13 AS wait
          FROM json_each(?1)) AS s
 WHERE jobs.seq = s.seq AND jobs.token = s.token
RETURNING seq, queue, state
