SELECT min(at) FROM (
  SELECT min(run_at) AS at FROM jobs WHERE state = 'scheduled'
   UNION ALL
  SELECT min(run_at) AS at FROM jobs WHERE state = 'waiting'
)
