SELECT id, state, body_hash FROM jobs
 WHERE tenant = ?1 AND "user" = ?2 AND idempotency_key = ?3
