INSERT INTO events (job, n, type, at, data, tenant, "user")
SELECT jobs.seq, jobs.events, s.type, s.at, s.data, jobs.tenant, jobs."user"
  FROM (SELECT value ->> 0 AS seq, value ->> 1 AS type, value ->> 2 AS at,
               value ->> 3 AS data
          FROM json_each(?1)) AS s
  JOIN jobs ON jobs.seq = s.seq
