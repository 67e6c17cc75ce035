INSERT INTO events (flow, n, type, at, tenant, "user")
SELECT seq, events, 'flow.' || state, finished_at, tenant, "user" FROM flows
 WHERE seq = ANY ($1::bigint[]) ORDER BY seq
