-- A flow ends when no step is left to do. A step that did not succeed does not fail the
-- flow if it has dependents and all of them continue regardless.
UPDATE flows
   SET finished_at = $2, events = events + 1,
       state = coalesce(
         (SELECT max(jobs.state) FROM jobs
           WHERE jobs.flow = flows.seq AND jobs.state IN ('failed','cancelled')
             AND (EXISTS (SELECT 1 FROM edges
                           WHERE prerequisite = jobs.seq AND NOT continues)
                  OR NOT EXISTS (SELECT 1 FROM edges
                                  WHERE prerequisite = jobs.seq))),
         'succeeded')
 WHERE seq = ANY ($1::bigint[])
RETURNING id, tenant, "user", generation, state, callback, request_id, traceparent
