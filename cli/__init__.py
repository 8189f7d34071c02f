"""The gpsched command."""
