"""Others' words on our terminal."""


def printable(text: str) -> str:
    """What would steer a terminal, in names of processes for instance, becomes a visible dot."""
    return "".join(char if char.isprintable() else "·" for char in text)
