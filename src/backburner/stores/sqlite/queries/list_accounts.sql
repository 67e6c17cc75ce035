-- The current balances of accounts.
SELECT a.scope, a.unit, a.per, a.tenant, a.value, a.window_at, a.held, a.settled,
       a.overdraft
  FROM json_each(?1) AS asked
  JOIN accounts AS a
    ON a.scope = asked.value ->> 0 AND a.unit = asked.value ->> 1
   AND a.per = asked.value ->> 2 AND a.tenant = asked.value ->> 3
   AND a.value = asked.value ->> 4 AND a.window_at = asked.value ->> 5
