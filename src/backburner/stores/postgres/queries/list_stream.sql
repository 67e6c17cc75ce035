SELECT events.seq, jobs.id, n, type, at, data
  FROM events JOIN jobs ON jobs.seq = events.job
 WHERE events.seq > $1 AND events.seq <= $2 AND tenant = $3 AND "user" = $4
 ORDER BY events.seq LIMIT $5
