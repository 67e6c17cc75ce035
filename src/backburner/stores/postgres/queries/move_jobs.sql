-- For jobs that are not running: the row must be as it was when the move was decided. A
-- retry by hand removes the deadline and similar times, which would end it at once.
WITH s AS (
  SELECT * FROM unnest(
    $1::bigint[], $2::text[], $3::int[], $4::text[], $5::bigint[], $6::bigint[],
    $7::text[], $8::text[], $9::text[], $10::int[], $11::int[], $12::bigint[],
    $13::int[], $14::bigint[], $15::text[], $16::text[]
  ) AS s (seq, from_state, from_generation, state, at, finished_at, error, code,
          fingerprint, attempt, crashes, throttled, generation, run_at, event, data)
), moved AS (
  UPDATE jobs
     SET state = s.state, output = NULL, error = s.error, error_code = s.code,
         fingerprint = s.fingerprint, wait = NULL,
         run_at = coalesce(s.run_at, jobs.run_at), ready_at = coalesce(s.run_at, s.at),
         attempt = coalesce(s.attempt, jobs.attempt),
         crashes = coalesce(s.crashes, jobs.crashes),
         throttled = coalesce(s.throttled, jobs.throttled),
         finished_at = s.finished_at,
         open = CASE WHEN s.finished_at IS NULL THEN jobs.open ELSE 0 END,
         start_by = CASE WHEN s.generation IS NULL THEN jobs.start_by END,
         deadline = CASE WHEN s.generation IS NULL THEN jobs.deadline END,
         expires_at = CASE WHEN s.generation IS NULL THEN jobs.expires_at END,
         generation = coalesce(s.generation, jobs.generation), events = events + 1
    FROM s
   WHERE jobs.seq = s.seq AND jobs.state = s.from_state
     AND jobs.generation = s.from_generation
  RETURNING jobs.seq, jobs.events, jobs.tenant, jobs."user", s.event, s.at, s.data,
            jobs.queue, jobs.state
), told AS (
  INSERT INTO events (job, n, type, at, data, tenant, "user")
  SELECT seq, events, event, at, data, tenant, "user" FROM moved
), counted AS (
  INSERT INTO totals (queue, state, n)
  SELECT queue, state, count(*) FROM moved
   WHERE state IN ('succeeded','failed','cancelled') GROUP BY queue, state
)
SELECT seq FROM moved
