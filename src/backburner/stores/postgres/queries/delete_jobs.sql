-- A job is kept while its idempotency key is valid and its batch exists; steps are
-- deleted with their flow. The deleted jobs have at most $5 events, but at least one job
-- is deleted: readers of all events wait while this runs.
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
