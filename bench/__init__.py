"""Scenarios, workload programs and their runner."""
