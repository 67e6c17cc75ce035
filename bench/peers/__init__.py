"""The peers: small programs that submit and drain the same jobs with other queues."""
