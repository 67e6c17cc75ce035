SELECT seq, queue, priority, tenant, coalesce(share, "user"), tokens, attempt
  FROM jobs WHERE seq IN (SELECT value FROM json_each(?1))
