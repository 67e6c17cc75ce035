-- What claim_jobs would take first.
SELECT priority, rank, seq FROM jobs
 WHERE queue = ?1 AND state = 'queued' AND coalesce(expires_at > ?2, 1)
 ORDER BY priority DESC, rank, seq LIMIT 1
