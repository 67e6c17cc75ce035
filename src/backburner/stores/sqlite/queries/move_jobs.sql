-- For jobs that are not running: the row must be as it was when the move was decided. A
-- retry by hand removes the deadline and similar times, which would end it at once.
UPDATE jobs
   SET state = s.state, output = NULL, error = s.error, error_code = s.code,
       fingerprint = s.fingerprint, wait = NULL,
       run_at = coalesce(s.run_at, jobs.run_at), ready_at = coalesce(s.run_at, s.at),
       attempt = coalesce(s.attempt, jobs.attempt),
       crashes = coalesce(s.crashes, jobs.crashes),
       throttled = coalesce(s.throttled, jobs.throttled), finished_at = s.finished_at,
       open = iif(s.finished_at IS NULL, open, 0),
       start_by = iif(s.generation IS NULL, start_by, NULL),
       deadline = iif(s.generation IS NULL, deadline, NULL),
       expires_at = iif(s.generation IS NULL, expires_at, NULL),
       generation = coalesce(s.generation, jobs.generation), events = events + 1
  FROM (SELECT value ->> 0 AS seq, value ->> 1 AS from_state,
               value ->> 2 AS from_generation, value ->> 3 AS state, value ->> 4 AS at,
               value ->> 5 AS finished_at, value ->> 6 AS error, value ->> 7 AS code,
               value ->> 8 AS fingerprint, value ->> 9 AS attempt,
               value ->> 10 AS crashes, value ->> 11 AS throttled,
               value ->> 12 AS generation, value ->> 13 AS run_at
          FROM json_each(?1)) AS s
 WHERE jobs.seq = s.seq AND jobs.state = s.from_state
   AND jobs.generation = s.from_generation
RETURNING seq, queue, state
