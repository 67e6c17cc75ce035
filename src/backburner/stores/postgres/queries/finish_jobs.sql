-- The fence is the token. Naming the state as well would make the planner join over
-- the nearly always empty index jobs_running.
WITH s AS (
  SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[]) AS s (seq, token, output)
), settled AS (
  UPDATE jobs
     SET state = 'succeeded', token = NULL, worker = NULL, output = s.output,
         error = NULL, error_code = NULL, finished_at = $4, events = events + 1
    FROM s WHERE jobs.seq = s.seq AND jobs.token = s.token
  RETURNING jobs.seq, jobs.flow, jobs.events, jobs.tenant, jobs."user", jobs.queue
), told AS (
  INSERT INTO events (job, n, type, at, tenant, "user")
  SELECT seq, events, 'job.succeeded', $4, tenant, "user" FROM settled
), counted AS (
  INSERT INTO totals (queue, state, n)
  SELECT queue, 'succeeded', count(*) FROM settled GROUP BY queue
)
SELECT seq, flow FROM settled
