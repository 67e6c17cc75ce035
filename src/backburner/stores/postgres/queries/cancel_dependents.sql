WITH waiting AS MATERIALIZED (
  SELECT seq FROM jobs
   WHERE seq = ANY (ARRAY (
     SELECT dependent FROM edges
      WHERE prerequisite = ANY ($1::bigint[]) AND NOT continues
   )) AND open > 0
   ORDER BY seq FOR UPDATE
)
UPDATE jobs
   SET state = 'cancelled', error = $3, error_code = $4, finished_at = $2, open = 0,
       events = events + 1
  FROM waiting WHERE jobs.seq = waiting.seq
RETURNING jobs.seq, jobs.queue
