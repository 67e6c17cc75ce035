-- SKIP LOCKED: two workers never wait for each other and never get the same job. The
-- literal state lets the partial index jobs_ready be used. Committed without waiting for
-- the disk: losing a claim only means running again. The front of a line never goes back,
-- as a retried job may be far behind it. The worker's row is locked until the claim
-- commits: a worker declared dead before gets nothing, and the claims of one declared
-- dead later are found. In a queue with limits, only callers that hold its lock ($6) may
-- claim.
WITH enlisted AS MATERIALIZED (
  SELECT id FROM workers WHERE id = $2 FOR KEY SHARE
), chosen AS (
  SELECT seq FROM jobs
   WHERE queue = $4 AND state = 'queued' AND coalesce(expires_at > $3, true)
     AND EXISTS (SELECT FROM enlisted)
     AND ($6 OR NOT EXISTS (
       SELECT FROM queues
        WHERE name = $4 AND (paused OR concurrency IS NOT NULL OR rate IS NOT NULL)))
   ORDER BY priority DESC, rank, seq LIMIT $5
   FOR UPDATE SKIP LOCKED
), taken AS (
  UPDATE jobs
     SET state = 'running', attempt = attempt + 1, token = $1, worker = $2,
         started_at = $3, expires_at = deadline, progress = NULL, events = events + 1
   WHERE seq = ANY (ARRAY (SELECT seq FROM chosen))
  RETURNING seq, id, token, tenant, "user", capability, queue, input, priority, rank,
            generation, attempt, max_attempts, crashes, throttled, deadline,
            created_at, ready_at, started_at, request_id, flow, batch, step,
            needs, callback, traceparent, events, tokens, model, share,
            holds
), told AS (
  INSERT INTO events (job, n, type, at, tenant, "user", data)
  SELECT seq, events, 'job.started', started_at, tenant, "user",
         '{"attempt":' || attempt || ',"generation":' || generation
         || ',"worker":"' || $2 || '"}'
    FROM taken
), reached AS (
  INSERT INTO fronts (queue, priority, front)
  SELECT $4, priority, max(rank) FROM taken GROUP BY priority ORDER BY priority
  ON CONFLICT (queue, priority) DO UPDATE SET front = excluded.front
   WHERE excluded.front > fronts.front
)
SELECT seq, id, token, tenant, "user", capability, queue, input, priority, rank,
       generation, attempt, max_attempts, crashes, throttled, deadline, created_at,
       ready_at, started_at, request_id, flow, batch, step, needs, callback, traceparent,
       events, tokens, model, share, holds
  FROM taken
