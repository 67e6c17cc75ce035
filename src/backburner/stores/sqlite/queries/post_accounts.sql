UPDATE accounts
   SET held = accounts.held + p.held, settled = accounts.settled + p.settled,
       overdraft = accounts.overdraft + p.overdraft
  FROM (SELECT value ->> 0 AS seq, value ->> 1 AS held, value ->> 2 AS settled,
               value ->> 3 AS overdraft
          FROM json_each(?1)) AS p
 WHERE accounts.seq = p.seq
