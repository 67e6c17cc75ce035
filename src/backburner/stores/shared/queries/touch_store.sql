-- Proves that the database can be written, and changes nothing.
DELETE FROM workers WHERE id = ''
