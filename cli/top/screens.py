"""The screens over the table: help, one process, a question, an input."""

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Static


class TextScreen(ModalScreen[None]):
    """Lines that Esc, q or Enter close; ``refresh_lines`` shows newer ones."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape,q,enter,h,question_mark,f1", "dismiss", "close")]

    def __init__(self, lines: Callable[[], list[str]]) -> None:
        super().__init__()
        self._lines = lines

    def compose(self) -> ComposeResult:
        """The lines in a box that scrolls."""
        with VerticalScroll(id="box"):
            yield Static("\n".join(self._lines()), id="text", markup=False)

    def refresh_lines(self) -> None:
        """Show what the lines are now."""
        if self.is_mounted:
            self.query_one("#text", Static).update("\n".join(self._lines()))


class Question(ModalScreen[bool]):
    """Asks before anything is changed; only y says yes."""

    BINDINGS: ClassVar[list[BindingType]] = [("y", "answer(True)", "yes"), ("n,escape,q,enter", "answer(False)", "no")]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        """The question."""
        yield Static(f"{self._question}\n\ny: yes    n: no", id="question", markup=False)

    def action_answer(self, yes: bool) -> None:
        """Close with the answer."""
        self.dismiss(yes)


class Ask(ModalScreen[str]):
    """One line of input; Esc gives up."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape", "dismiss('')", "give up")]

    def __init__(self, prompt: str) -> None:
        super().__init__()
        self._prompt = prompt

    def compose(self) -> ComposeResult:
        """The input."""
        yield Input(placeholder=self._prompt, id="ask")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Close with what was typed."""
        self.dismiss(event.value.strip())
