INSERT INTO holds (seq, id, job, generation, account, amount, is_open, is_estimated,
                   expires_at)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5,
       1, 0, value ->> 6
  FROM json_each(?1)
