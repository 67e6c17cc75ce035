-- Run every second by every process, so it must be cheap; matches are read separately.
SELECT EXISTS (
  SELECT FROM jobs
   WHERE expires_at IS NOT NULL AND expires_at <= $1
     AND state IN ('blocked', 'scheduled', 'queued')
)
