SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = ?1), 0)
