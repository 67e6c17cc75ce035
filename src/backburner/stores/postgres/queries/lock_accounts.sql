-- An account that does not exist is created first and is limited from then on. Locked in
-- the order of their names, so that two transactions cannot deadlock.
INSERT INTO accounts (scope, unit, per, tenant, value, window_at, ceiling)
SELECT scope, unit, per, tenant, value, window_at, ceiling
  FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[],
              $6::bigint[], $7::bigint[])
    AS a (scope, unit, per, tenant, value, window_at, ceiling)
 ORDER BY scope, unit, per, tenant, value, window_at
ON CONFLICT (scope, unit, per, tenant, value, window_at)
  DO UPDATE SET ceiling = excluded.ceiling
RETURNING scope, unit, per, tenant, value, window_at, seq, held, settled, overdraft
