-- One writer at a time holds the file, so the next numbers are free. Those of pruned
-- jobs are not given again: somebody may still decide on what they stood for.
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'jobs'), 0)
