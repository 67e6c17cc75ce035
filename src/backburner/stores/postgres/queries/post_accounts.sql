-- Locked in the order of their names, as in lock_accounts.
WITH locked AS MATERIALIZED (
  SELECT accounts.seq, p.held, p.settled, p.overdraft
    FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[])
      AS p (seq, held, settled, overdraft)
    JOIN accounts ON accounts.seq = p.seq
   ORDER BY accounts.scope, accounts.unit, accounts.per, accounts.tenant,
            accounts.value, accounts.window_at
     FOR UPDATE OF accounts
)
UPDATE accounts
   SET held = accounts.held + locked.held,
       settled = accounts.settled + locked.settled,
       overdraft = accounts.overdraft + locked.overdraft
  FROM locked WHERE accounts.seq = locked.seq
