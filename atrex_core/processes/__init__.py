"""Processes and what they say to each other: orchestrator, referee, fork server, worker."""
