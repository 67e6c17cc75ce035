-- A job is kept while its idempotency key is valid and its batch exists; steps are
-- deleted with their flow.
DELETE FROM jobs WHERE seq IN (
  SELECT seq FROM jobs
   WHERE finished_at IS NOT NULL AND kept IS NULL AND finished_at <= ?2 AND state = ?1
     AND (idempotency_key IS NULL OR created_at < ?4) AND flow IS NULL
     AND NOT EXISTS (SELECT 1 FROM batches WHERE batches.seq = jobs.batch)
   ORDER BY finished_at LIMIT ?3
)
RETURNING seq, id
