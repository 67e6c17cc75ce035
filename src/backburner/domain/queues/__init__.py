"""Queues: limits, fair order and schedules."""
