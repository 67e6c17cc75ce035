UPDATE jobs SET idempotency_key = NULL
 WHERE tenant = ?1 AND "user" = ?2 AND idempotency_key = ?3 AND created_at < ?4
