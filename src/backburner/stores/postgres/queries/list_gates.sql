-- No row: the worker is not enlisted. NULL: no queue has limits, the usual case.
SELECT (SELECT string_agg(name, chr(10)) FROM queues
         WHERE paused OR concurrency IS NOT NULL OR rate IS NOT NULL)
  FROM workers WHERE id = $1
