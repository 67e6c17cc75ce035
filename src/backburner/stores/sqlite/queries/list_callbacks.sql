SELECT id, tenant, "user", generation, state, callback, request_id, traceparent
  FROM jobs WHERE seq IN (SELECT value FROM json_each(?1)) AND callback IS NOT NULL ORDER BY seq
