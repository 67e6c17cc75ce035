SELECT id, tenant, "user", generation, state, callback, request_id, traceparent
  FROM jobs WHERE seq = ANY ($1::bigint[]) AND callback IS NOT NULL ORDER BY seq
