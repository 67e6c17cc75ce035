"""Checks what callers ask for and turns it into jobs that can be stored."""
