-- The current balances of accounts, without locks.
SELECT a.scope, a.unit, a.per, a.tenant, a.value, a.window_at, a.held, a.settled,
       a.overdraft
  FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[],
              $6::bigint[])
    AS asked (scope, unit, per, tenant, value, window_at)
  JOIN accounts AS a
    ON a.scope = asked.scope AND a.unit = asked.unit AND a.per = asked.per
   AND a.tenant = asked.tenant AND a.value = asked.value
   AND a.window_at = asked.window_at
