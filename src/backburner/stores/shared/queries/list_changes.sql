SELECT events.seq, jobs.id, n, type, at, data
  FROM jobs JOIN events ON events.job = jobs.seq
 WHERE jobs.id = ?1 AND type NOT IN ('job.progress', 'job.output.delta')
   AND n > ?2 ORDER BY n LIMIT ?3
