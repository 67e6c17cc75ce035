-- Counts down what each dependent still waits for; the last one queues it, or schedules
-- it if its time is yet to come. ?1 are steps that succeeded; of ?2, which did not,
-- only those edges open that continue.
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
