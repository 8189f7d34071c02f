"""Loads and attaches the BPF programs, decodes their events."""
