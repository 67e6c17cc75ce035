-- A job is kept for as long as its idempotency key must be known and its batch is
-- there; steps go with their flow. No more jobs go than have $5 events, at least one:
-- while this runs, readers of all events wait.
WITH old AS (
  SELECT seq, events, finished_at FROM jobs
   WHERE finished_at IS NOT NULL AND kept IS NULL AND finished_at <= $2 AND state = $1
     AND (idempotency_key IS NULL OR created_at < $4) AND flow IS NULL
     AND NOT EXISTS (SELECT 1 FROM batches WHERE batches.seq = jobs.batch)
   ORDER BY finished_at LIMIT $3 FOR UPDATE SKIP LOCKED
), chosen AS (
  SELECT seq, sum(events) OVER (ORDER BY finished_at, seq) - events AS before FROM old
), gone AS (
  DELETE FROM jobs WHERE seq = ANY (ARRAY (SELECT seq FROM chosen WHERE before < $5))
  RETURNING seq, id
), forgotten AS (
  DELETE FROM events USING gone WHERE events.job = gone.seq
), unneeded AS (
  DELETE FROM step_results USING gone WHERE step_results.job = gone.seq
), unawaited AS (
  DELETE FROM waits USING gone WHERE waits.job = gone.seq
)
SELECT id FROM gone
