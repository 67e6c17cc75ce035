-- Counts down the active steps of flows; at 0, no step is left to do. Only for a flow with
-- trouble are its steps read: a step that did not succeed does not fail the flow if it
-- has dependents and all of them continue regardless.
UPDATE flows
   SET active = active - d.n, troubled = flows.troubled OR d.troubled,
       finished_at = iif(active = d.n, ?2, NULL), events = events + (active = d.n),
       state = CASE WHEN active > d.n THEN 'running'
                    WHEN NOT (flows.troubled OR d.troubled) THEN 'succeeded'
                    ELSE coalesce(
         (SELECT max(jobs.state) FROM jobs
           WHERE jobs.flow = flows.seq AND jobs.state IN ('failed','cancelled')
             AND (EXISTS (SELECT 1 FROM edges
                           WHERE prerequisite = jobs.seq AND NOT continues)
                  OR NOT EXISTS (SELECT 1 FROM edges
                                  WHERE prerequisite = jobs.seq))),
         'succeeded') END
  FROM (SELECT value ->> 0 AS seq, value ->> 1 AS n, value ->> 2 AS troubled
          FROM json_each(?1)) AS d
 WHERE flows.seq = d.seq
RETURNING seq, finished_at, id, tenant, "user", generation, state, callback,
          request_id, traceparent
