-- Proves that the file can be written, and changes nothing.
DELETE FROM workers WHERE id = ''
