SELECT 1 FROM jobs
 WHERE queue = $1 AND state = 'queued' AND coalesce(expires_at > $2, true) LIMIT 1
