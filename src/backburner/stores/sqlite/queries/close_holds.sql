UPDATE holds
   SET is_open = 0, used = m.used, is_estimated = m.is_estimated
  FROM (SELECT value ->> 0 AS seq, value ->> 1 AS used, value ->> 2 AS is_estimated
          FROM json_each(?1)) AS m
 WHERE holds.seq = m.seq
