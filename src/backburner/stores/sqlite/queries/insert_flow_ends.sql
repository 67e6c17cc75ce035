INSERT INTO events (flow, n, type, at)
SELECT seq, events, 'flow.' || state, finished_at FROM flows
 WHERE seq IN (SELECT value FROM json_each(?1)) ORDER BY seq
