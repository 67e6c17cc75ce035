-- The unique index on (tenant, user, idempotency_key) allows one job per key; no row
-- means that the key is in use.
INSERT INTO jobs (
  seq, rank, id, tenant, "user", capability, queue, state, priority, max_attempts,
  run_at, start_by, deadline, expires_at, created_at, ready_at,
  input, tags, request_id, idempotency_key, body_hash, flow, step, needs, open, batch,
  callback, traceparent, tokens, model, share, holds, kept, metadata
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
          ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING
RETURNING seq
