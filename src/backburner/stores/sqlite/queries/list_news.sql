SELECT events.seq, jobs.id, events.n, events.type, events.at, events.data
  FROM (SELECT value ->> 0 AS job, value ->> 1 AS n FROM json_each(?1)) AS s
  JOIN events ON events.job = s.job AND events.n > s.n
  JOIN jobs ON jobs.seq = events.job
 ORDER BY events.seq LIMIT ?2
