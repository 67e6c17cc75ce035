-- Assigns spans of virtual time to shares, as described in domain/queues/fairness.py.
-- Commits by itself and without waiting for the disk, so that a share's row is locked only
-- briefly: later durable commits flush it, and a gap does no harm. Shares of queues with a
-- cap are left out unless $6: they are ranked where they are counted.
WITH quick AS MATERIALIZED (
  SELECT set_config('synchronous_commit', 'off', true) AS mode
), weighed AS (
  SELECT a.*, coalesce((q.weights::jsonb ->> a.name)::bigint, 1) AS weight,
         coalesce(f.front, 0) AS front
    FROM quick
    JOIN unnest($1::text[], $2::int[], $3::text[], $4::text[], $5::bigint[])
         AS a (queue, priority, tenant, name, cost) ON quick.mode = 'off'
    LEFT JOIN queues AS q ON q.name = a.queue
    LEFT JOIN fronts AS f ON f.queue = a.queue AND f.priority = a.priority
   WHERE $6 OR q.waiting IS NULL
), asked AS (
  SELECT *, (abs(cost) * 1000 + weight - 1) / weight
            * CASE WHEN cost > 0 THEN 1 ELSE -1 END AS span
    FROM weighed
)
INSERT INTO shares AS s (queue, priority, tenant, name, finish, taken)
SELECT queue, priority, tenant, name, front + span, span FROM asked
 ORDER BY queue, priority, tenant, name
ON CONFLICT (queue, priority, tenant, name) DO UPDATE SET
  finish = greatest(s.finish, excluded.finish - excluded.taken) + excluded.taken,
  taken = excluded.taken
RETURNING queue, priority, tenant, name, finish - taken, taken
