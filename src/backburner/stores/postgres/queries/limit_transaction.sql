-- Makes the server end this transaction if its process is blocked or a statement takes
-- too long: the process itself could not, and its locks block others.
SELECT set_config('statement_timeout', $1, true),
       set_config('idle_in_transaction_session_timeout', $1, true)
