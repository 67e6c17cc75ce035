"""The benchmark: throughput, latency and cost, compared with other queues."""
