INSERT INTO entries (at, account, hold, kind, amount, ceiling)
SELECT at, account, hold, kind, amount, ceiling
  FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::bigint[],
              $6::bigint[]) WITH ORDINALITY
    AS e (at, account, hold, kind, amount, ceiling, place)
 ORDER BY place
