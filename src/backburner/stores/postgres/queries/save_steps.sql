-- The jobs are locked, so that their tokens stay valid until the commit. A stored key
-- keeps its first result; it is returned like a new one. A row without a result was begun
-- only; if an earlier run began it, that run is in doubt.
WITH s AS (
  SELECT * FROM unnest(
    $1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::int[],
    $7::bigint[], $8::text[], $9::int[], $10::bool[], $11::bool[], $12::bigint[]
  ) WITH ORDINALITY
    AS s (job, token, key, kind, name, epoch, at, result, expected, is_open,
          is_concurrent, duration_ms, place)
), held AS (
  SELECT seq, token FROM jobs
   WHERE seq = ANY ($1::bigint[]) ORDER BY seq FOR NO KEY UPDATE
)
INSERT INTO step_results AS old
       (job, key, kind, name, epoch, at, result, expected, is_open,
        is_concurrent, duration_ms)
SELECT s.job, s.key, s.kind, s.name, s.epoch, s.at, s.result, s.expected, s.is_open,
       s.is_concurrent, s.duration_ms
  FROM s JOIN held ON held.seq = s.job AND held.token = s.token
 ORDER BY s.place
ON CONFLICT (job, key) DO UPDATE SET
  doubts = old.doubts + (old.is_open AND old.epoch < excluded.epoch)::int,
  epoch = CASE WHEN old.result = '' THEN excluded.epoch ELSE old.epoch END,
  at = CASE WHEN old.result = '' THEN excluded.at ELSE old.at END,
  duration_ms = CASE WHEN old.result = '' THEN excluded.duration_ms
                     ELSE old.duration_ms END,
  result = CASE WHEN old.result = '' THEN excluded.result ELSE old.result END,
  is_concurrent = old.is_concurrent OR excluded.is_concurrent,
  is_open = old.result = '' AND excluded.is_open
RETURNING job, key
