-- The literal state lets the partial index jobs_ready be used. A job past its deadline is
-- left to upkeep, which fails it. Losing this commit is harmless.
UPDATE jobs
   SET state = 'running', attempt = attempt + 1, token = ?1, worker = ?2,
       started_at = ?3, expires_at = deadline, progress = NULL, events = events + 1
 WHERE seq IN (
   SELECT seq FROM jobs
    WHERE queue = ?4 AND state = 'queued' AND coalesce(expires_at > ?3, 1)
    ORDER BY priority DESC, rank, seq LIMIT ?5
 )
RETURNING seq, id, token, tenant, "user", capability, queue, input, priority, rank,
          generation, attempt, max_attempts, crashes, throttled, deadline, created_at,
          ready_at, started_at, request_id, flow, batch, step, needs, callback,
          traceparent, events, tokens, model, share, holds
