"""Jobs: their states, outcomes, retries and retention."""
