-- There is one writer at a time, so the next numbers are free. Numbers of deleted jobs are
-- not reused, as a pending move may still refer to them.
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'jobs'), 0)
