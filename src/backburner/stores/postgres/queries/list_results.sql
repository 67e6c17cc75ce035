SELECT id, capability, created_at, output, error
  FROM jobs WHERE seq = ANY ($1::bigint[]) AND callback IS NOT NULL
