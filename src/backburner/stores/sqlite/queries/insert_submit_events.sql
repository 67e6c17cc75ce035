INSERT INTO events (job, n, type, at, tenant, "user")
SELECT seq, 1, 'job.' || state, created_at, tenant, "user"
  FROM jobs WHERE seq BETWEEN ?1 AND ?2
