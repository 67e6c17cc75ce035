-- A stored key keeps its first result; it is returned like a new one. A row without a
-- result was begun only; if an earlier run began it, that run is in doubt.
INSERT INTO step_results AS old
       (job, key, kind, name, epoch, at, result, expected, is_open,
        is_concurrent, duration_ms)
SELECT jobs.seq, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6,
       value ->> 7, value ->> 8, value ->> 9, value ->> 10,
       value ->> 11
  FROM json_each(?1)
  JOIN jobs ON jobs.seq = value ->> 0 AND jobs.token = value ->> 1
 WHERE TRUE
ON CONFLICT (job, key) DO UPDATE SET
  doubts = old.doubts + (old.is_open AND old.epoch < excluded.epoch),
  epoch = CASE WHEN old.result = '' THEN excluded.epoch ELSE old.epoch END,
  at = CASE WHEN old.result = '' THEN excluded.at ELSE old.at END,
  duration_ms = CASE WHEN old.result = '' THEN excluded.duration_ms
                     ELSE old.duration_ms END,
  result = CASE WHEN old.result = '' THEN excluded.result ELSE old.result END,
  is_concurrent = old.is_concurrent OR excluded.is_concurrent,
  is_open = old.result = '' AND excluded.is_open
RETURNING job, key
