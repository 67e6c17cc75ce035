DELETE FROM events WHERE job IN (SELECT value FROM json_each(?1))
