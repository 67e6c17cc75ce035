SELECT events.seq, jobs.id, events.n, events.type, events.at, events.data
  FROM unnest($1::bigint[], $2::int[]) AS s (job, n)
  JOIN events ON events.job = s.job AND events.n > s.n
  JOIN jobs ON jobs.seq = events.job
 ORDER BY events.seq LIMIT $3
