SELECT events.seq, jobs.id, n, type, at, data
  FROM events JOIN jobs ON jobs.seq = events.job
 WHERE events.seq > ?1 AND tenant = ?2 AND "user" = ?3
 ORDER BY events.seq LIMIT ?4
