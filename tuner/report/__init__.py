"""Reports of what the tuner did: built from its history, shown as text, JSON or one HTML page."""
