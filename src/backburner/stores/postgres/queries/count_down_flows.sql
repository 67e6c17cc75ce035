-- The transaction that counts down the last step ends the flow: it sees what earlier
-- holders of the row lock did. Locked by key, like steps. A flow without trouble has
-- succeeded; for any other, its steps are read, see conclude_flows.
WITH locked AS MATERIALIZED (
  SELECT flows.seq, d.n, d.troubled
    FROM unnest($1::bigint[], $2::int[], $3::boolean[]) AS d (seq, n, troubled)
    JOIN flows ON flows.seq = d.seq
   ORDER BY flows.seq FOR UPDATE OF flows
), counted AS (
  UPDATE flows
     SET active = flows.active - locked.n,
         troubled = flows.troubled OR locked.troubled,
         state = CASE WHEN flows.active = locked.n
                       AND NOT (flows.troubled OR locked.troubled)
                      THEN 'succeeded' ELSE flows.state END,
         finished_at = CASE WHEN flows.active = locked.n
                             AND NOT (flows.troubled OR locked.troubled)
                            THEN $4::bigint ELSE flows.finished_at END,
         events = flows.events + CASE WHEN flows.active = locked.n
                                       AND NOT (flows.troubled OR locked.troubled)
                                      THEN 1 ELSE 0 END
    FROM locked WHERE flows.seq = locked.seq
  RETURNING flows.seq, flows.active, flows.troubled, flows.events, flows.id,
            flows.tenant, flows."user", flows.generation, flows.state, flows.callback,
            flows.request_id, flows.traceparent
), told AS (
  INSERT INTO events (flow, n, type, at, tenant, "user")
  SELECT seq, events, 'flow.succeeded', $4, tenant, "user" FROM counted
   WHERE active = 0 AND NOT troubled ORDER BY seq
)
SELECT seq, troubled, id, tenant, "user", generation, state, callback, request_id,
       traceparent
  FROM counted WHERE active = 0 ORDER BY seq
