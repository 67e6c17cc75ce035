"""Small programs that submit and run the same jobs with other queues."""
