-- The literal states let the partial index jobs_waiting serve; never more than $4 are
-- counted.
SELECT count(*) FROM (
  SELECT FROM jobs
   WHERE queue = $1 AND tenant = $2 AND share = $3
     AND state IN ('blocked','scheduled','queued')
   LIMIT $4
) AS waiting
