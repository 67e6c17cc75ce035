-- Run with executemany, which is faster for wide rows than one JSON parameter.
INSERT INTO jobs (
  seq, rank, id, tenant, "user", capability, queue, state, priority, max_attempts,
  run_at, start_by, deadline, expires_at, created_at, ready_at,
  input, tags, request_id, idempotency_key, body_hash, flow, step, needs, open, batch,
  callback, traceparent, tokens, model, share, holds, kept, metadata
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
          ?, ?, ?, ?, ?, ?, ?, ?)
