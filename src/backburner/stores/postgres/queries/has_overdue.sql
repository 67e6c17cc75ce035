-- Looked at every second by every process: so cheap, and what it finds is read apart.
SELECT EXISTS (
  SELECT FROM jobs
   WHERE expires_at IS NOT NULL AND expires_at <= $1
     AND state IN ('blocked', 'scheduled', 'queued')
)
