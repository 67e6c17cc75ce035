-- Of the running transactions only those of this database can write here; a snapshot
-- counts those of all. Ids come without their epoch, so they are counted from a whole
-- one: no two that run are 2^31 apart.
SELECT coalesce((SELECT max(seq) FROM events), 0) AS newest,
       coalesce(
         (SELECT min(whole.id + mod(
                   mod(a.backend_xid::text::bigint - whole.id + 2147483648, 4294967296)
                   + 4294967296, 4294967296) - 2147483648)
            FROM pg_stat_get_activity(NULL) AS a,
                 (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS id)
                   AS whole
           WHERE a.backend_xid IS NOT NULL
             AND a.datid = (SELECT oid FROM pg_database
                             WHERE datname = current_database())),
         9223372036854775807
       ) AS oldest_running
