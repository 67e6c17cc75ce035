UPDATE jobs SET progress = s.data, events = events + 1
  FROM (SELECT value ->> 0 AS seq, value ->> 1 AS token, value ->> 2 AS data
          FROM json_each(?1)) AS s
 WHERE jobs.seq = s.seq AND jobs.token = s.token
RETURNING seq
