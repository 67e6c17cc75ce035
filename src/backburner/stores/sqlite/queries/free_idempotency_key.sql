UPDATE jobs SET idempotency_key = NULL
 WHERE tenant = ? AND "user" = ? AND idempotency_key = ? AND created_at < ?
