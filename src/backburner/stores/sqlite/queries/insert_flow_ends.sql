INSERT INTO events (flow, n, type, at, tenant, "user")
SELECT seq, events, 'flow.' || state, finished_at, tenant, "user"
  FROM json_each(?1) AS told CROSS JOIN flows ON flows.seq = told.value
