INSERT INTO entries (at, account, hold, kind, amount, ceiling)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5
  FROM json_each(?1)
