SELECT nextval($1::text::regclass) FROM generate_series(1, $2::int)
