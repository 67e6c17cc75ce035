SELECT events.seq, coalesce(jobs.id, flows.id, batches.id, events.queue), n, type, at,
       data
  FROM events
  LEFT JOIN jobs ON jobs.seq = events.job
  LEFT JOIN flows ON flows.seq = events.flow
  LEFT JOIN batches ON batches.seq = events.batch
 WHERE events.seq > $1 AND events.seq <= $2 AND (
   coalesce(jobs.tenant, flows.tenant, batches.tenant) = $3
   AND coalesce(jobs."user", flows."user", batches."user") = $4
   OR $6::boolean AND events.queue IS NOT NULL
 )
 ORDER BY events.seq LIMIT $5
