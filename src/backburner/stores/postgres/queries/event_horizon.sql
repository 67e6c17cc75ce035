-- Only running transactions of this database can write here; a snapshot counts those of
-- all databases. Ids come without their epoch, so they are computed relative to a full
-- one: the ids of two running transactions differ by less than 2^31.
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
