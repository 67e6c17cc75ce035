-- An account that does not exist is created first and is limited from then on.
INSERT INTO accounts (scope, unit, per, tenant, value, window_at, ceiling)
SELECT a.value ->> 0, a.value ->> 1, a.value ->> 2, a.value ->> 3, a.value ->> 4,
       a.value ->> 5, a.value ->> 6
  FROM json_each(?1) AS a WHERE 1
ON CONFLICT (scope, unit, per, tenant, value, window_at)
  DO UPDATE SET ceiling = excluded.ceiling
RETURNING scope, unit, per, tenant, value, window_at, seq, held, settled, overdraft
