DELETE FROM waits WHERE job IN (SELECT value FROM json_each(?1))
