"""Events of jobs and of applications."""
