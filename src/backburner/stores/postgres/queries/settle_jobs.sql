WITH s AS (
  SELECT * FROM unnest(
    $1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::text[],
    $7::text[], $8::text[], $9::text[], $10::bigint[], $11::int[], $12::int[],
    $13::bigint[], $14::text[], $15::text[], $16::text[]
  ) AS s (seq, token, state, at, finished_at, output, error, code, fingerprint,
          run_at, attempt, crashes, throttled, event, data, wait)
), settled AS (
  UPDATE jobs
     SET state = s.state, token = NULL, worker = NULL, output = s.output,
         error = s.error, error_code = s.code, fingerprint = s.fingerprint,
         run_at = CASE WHEN s.state = 'waiting' THEN s.run_at
                       ELSE coalesce(s.run_at, jobs.run_at) END,
         wait = s.wait,
         ready_at = coalesce(s.run_at, s.at),
         attempt = coalesce(s.attempt, jobs.attempt),
         crashes = coalesce(s.crashes, jobs.crashes),
         throttled = coalesce(s.throttled, jobs.throttled),
         finished_at = s.finished_at, events = events + 1
    FROM s WHERE jobs.seq = s.seq AND jobs.token = s.token
  RETURNING jobs.seq, jobs.events, jobs.tenant, jobs."user", s.event, s.at, s.data,
            jobs.queue, jobs.state
), told AS (
  INSERT INTO events (job, n, type, at, data, tenant, "user")
  SELECT seq, events, event, at, data, tenant, "user" FROM settled
), counted AS (
  INSERT INTO totals (queue, state, n)
  SELECT queue, state, count(*) FROM settled
   WHERE state IN ('succeeded','failed','cancelled') GROUP BY queue, state
)
SELECT seq FROM settled
