-- release_jobs and claim_jobs in one, for steps with a single prerequisite that come
-- before all queued jobs: ?7 to ?9 are the priority, rank and key of the first of those.
-- The sign prevents the use of the index of blocked jobs.
UPDATE jobs
   SET state = 'running', open = 0, ready_at = ?5, attempt = attempt + 1, token = ?1,
       worker = ?2, started_at = ?3, expires_at = deadline, progress = NULL,
       events = events + 2
 WHERE seq IN (SELECT value FROM json_each(?6)) AND state = 'blocked' AND open = 1
   AND +queue = ?4 AND coalesce(run_at <= ?5, 1) AND coalesce(expires_at > ?3, 1)
   AND (?7 IS NULL OR (-priority, rank, seq) < (-?7, ?8, ?9))
RETURNING seq, id, token, tenant, "user", capability, queue, input, priority, rank,
          generation, attempt, max_attempts, crashes, throttled, deadline, created_at,
          ready_at, started_at, request_id, flow, batch, step, needs, callback,
          traceparent, events, tokens, model, share, holds
