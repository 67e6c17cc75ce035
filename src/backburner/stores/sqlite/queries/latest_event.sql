-- Not the highest number in the table: the end of the log does not go back when the newest
-- events are deleted.
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0)
