"""``gpsched top``: the node on one screen, live or from a record."""
