-- Whoever has a number of an event holds this lock until its transaction has ended and
-- is visible: a transaction without the lock has none, however long it stays open. The
-- list of locks is not read at every look, as others wait for a part of it meanwhile.
SELECT coalesce(
         (SELECT min(whole.id + mod(
                   mod(a.backend_xid::text::bigint - whole.id + 2147483648, 4294967296)
                   + 4294967296, 4294967296) - 2147483648)
            FROM pg_stat_get_activity(NULL) AS a
            JOIN pg_locks AS held ON held.pid = a.pid,
                 (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS id)
                   AS whole
           WHERE a.backend_xid IS NOT NULL
             AND held.relation = 'events'::regclass
             AND held.mode = 'RowExclusiveLock' AND held.granted
             AND held.database = (SELECT oid FROM pg_database
                                   WHERE datname = current_database())),
         9223372036854775807
       ) AS oldest_writer
