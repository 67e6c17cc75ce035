-- Decreases the number of open prerequisites of each dependent; at 0 it is queued, or
-- scheduled if its time has not come. ?1 are steps that succeeded; for those of ?2, which
-- did not, only edges with `continues` count.
UPDATE jobs
   SET open = jobs.open - d.n,
       state = CASE WHEN jobs.open > d.n THEN 'blocked'
                    WHEN coalesce(run_at > ?3, 0) THEN 'scheduled' ELSE 'queued' END,
       ready_at = iif(coalesce(run_at > ?3, 0), run_at, ?3),
       events = events + (jobs.open <= d.n)
  FROM (SELECT dependent AS seq, count(*) AS n
          FROM (SELECT dependent FROM json_each(?1) JOIN edges ON prerequisite = value
                 UNION ALL
                SELECT dependent FROM json_each(?2) JOIN edges ON prerequisite = value
                 WHERE continues)
         GROUP BY dependent) AS d
 WHERE jobs.seq = d.seq AND jobs.state = 'blocked'
RETURNING seq, state, flow
