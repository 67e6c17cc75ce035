-- What a transaction needs to rank new jobs: the front of their line, and the finish of
-- their share. One query per share is faster than one JSON parameter for all.
SELECT coalesce(f.front, 0), s.finish, q.weights, q.waiting
  FROM (SELECT 1)
  LEFT JOIN fronts AS f ON f.queue = ?1 AND f.priority = ?2
  LEFT JOIN shares AS s ON s.queue = ?1 AND s.priority = ?2 AND s.tenant = ?3
                       AND s.name = ?4
  LEFT JOIN queues AS q ON q.name = ?1
