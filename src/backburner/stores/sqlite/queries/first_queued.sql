-- The first job that claim_jobs would return.
SELECT priority, rank, seq FROM jobs
 WHERE queue = ?1 AND state = 'queued' AND coalesce(expires_at > ?2, 1)
 ORDER BY priority DESC, rank, seq LIMIT 1
