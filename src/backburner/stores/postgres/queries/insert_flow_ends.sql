INSERT INTO events (flow, n, type, at)
SELECT seq, events, 'flow.' || state, finished_at FROM flows
 WHERE seq = ANY ($1::bigint[]) ORDER BY seq
