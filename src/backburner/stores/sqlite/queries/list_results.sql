SELECT id, capability, created_at, output, error
  FROM jobs WHERE seq IN (SELECT value FROM json_each(?1)) AND callback IS NOT NULL
