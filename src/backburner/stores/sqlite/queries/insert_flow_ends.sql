INSERT INTO events (flow, n, type, at)
SELECT seq, events, 'flow.' || state, finished_at
  FROM json_each(?1) AS told CROSS JOIN flows ON flows.seq = told.value
