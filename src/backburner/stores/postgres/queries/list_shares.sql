-- What a transaction needs to rank new jobs: the front of their line, and the finish of
-- their share. Locks nothing: shares are charged afterwards.
SELECT a.queue, a.priority, a.tenant, a.name, coalesce(f.front, 0), s.finish, q.weights,
       q.waiting
  FROM unnest($1::text[], $2::int[], $3::text[], $4::text[])
       AS a (queue, priority, tenant, name)
  LEFT JOIN fronts AS f ON f.queue = a.queue AND f.priority = a.priority
  LEFT JOIN shares AS s ON s.queue = a.queue AND s.priority = a.priority
                       AND s.tenant = a.tenant AND s.name = a.name
  LEFT JOIN queues AS q ON q.name = a.queue
