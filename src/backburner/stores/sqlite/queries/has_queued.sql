SELECT 1 FROM jobs
 WHERE queue = ?1 AND state = 'queued' AND coalesce(expires_at > ?2, 1) LIMIT 1
