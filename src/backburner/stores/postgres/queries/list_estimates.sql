SELECT seq, queue, priority, tenant, coalesce(share, "user"), tokens, attempt
  FROM jobs WHERE seq = ANY ($1::bigint[])
