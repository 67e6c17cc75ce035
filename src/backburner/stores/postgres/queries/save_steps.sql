-- The jobs are locked, so that none is lost between the look at its token and the
-- commit. A key that is stored keeps its first result; it is returned as if it were new.
WITH s AS (
  SELECT * FROM unnest(
    $1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::int[],
    $7::bigint[], $8::text[]
  ) WITH ORDINALITY AS s (job, token, key, kind, name, epoch, at, result, place)
), held AS (
  SELECT seq, token FROM jobs
   WHERE seq = ANY ($1::bigint[]) ORDER BY seq FOR NO KEY UPDATE
)
INSERT INTO step_results (job, key, kind, name, epoch, at, result)
SELECT s.job, s.key, s.kind, s.name, s.epoch, s.at, s.result
  FROM s JOIN held ON held.seq = s.job AND held.token = s.token
 ORDER BY s.place
ON CONFLICT (job, key) DO UPDATE SET key = excluded.key
RETURNING job, key
