-- The literal states let the partial index jobs_waiting be used; at most ?4 jobs are
-- counted.
SELECT count(*) FROM (
  SELECT 1 FROM jobs
   WHERE queue = ?1 AND tenant = ?2 AND share = ?3 AND share IS NOT NULL
     AND state IN ('blocked','scheduled','queued')
   LIMIT ?4
)
