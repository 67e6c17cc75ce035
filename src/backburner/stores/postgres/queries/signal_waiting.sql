-- Decides the open wait of a waiting job and queues the job, in one round trip. No row:
-- the job does not wait, or not for this signal; the caller then checks further. A waiting
-- job has stored its wait before, so both are in this statement's snapshot; a job that was
-- moved meanwhile is not found again under its lock.
WITH waiting AS (
  SELECT seq, generation FROM jobs WHERE seq = $1 AND state = 'waiting' FOR UPDATE
), clock AS (
  SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS at
), decided AS (
  UPDATE waits
     SET outcome = 'signalled', value = $3, decided_at = clock.at
    FROM waiting, clock
   WHERE waits.job = waiting.seq AND waits.generation = waiting.generation
     AND waits.name = $2 AND waits.outcome IS NULL
     AND $4::boolean = (waits.kind = 'question')
  RETURNING waits.job, clock.at
), moved AS (
  UPDATE jobs
     SET state = 'queued', wait = NULL, ready_at = decided.at, events = events + 1,
         output = NULL, error = NULL, error_code = NULL, fingerprint = NULL
    FROM decided WHERE jobs.seq = decided.job
  RETURNING jobs.seq, jobs.events, jobs.tenant, jobs."user", decided.at
), told AS (
  INSERT INTO events (job, n, type, at, data, tenant, "user")
  SELECT seq, events, $5, at, $6, tenant, "user" FROM moved
)
SELECT seq FROM moved
