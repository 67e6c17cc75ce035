SELECT id, state, body_hash FROM jobs
 WHERE tenant = ? AND "user" = ? AND idempotency_key = ?
