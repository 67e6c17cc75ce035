INSERT INTO events (job, n, type, at)
SELECT seq, 1, 'job.' || state, created_at FROM jobs WHERE seq BETWEEN ?1 AND ?2
