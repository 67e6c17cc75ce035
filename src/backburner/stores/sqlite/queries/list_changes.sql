SELECT events.seq, jobs.id, n, type, at, data
  FROM jobs JOIN events ON events.job = jobs.seq
 WHERE jobs.id = ?1 AND type <> 'job.progress' ORDER BY n LIMIT ?2
