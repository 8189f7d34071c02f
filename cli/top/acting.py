"""The keys of ``top`` that change something: each asks first, none works when it is read-only."""

from collections.abc import Callable
from typing import TypeVar

from textual.app import App
from textual.widgets import Static

from gpsched.adaptive.errors import GpschedError, UsageError
from gpsched.adaptive.knobs import knob
from gpsched.adaptive.model import Class, ProcessView, Snapshot
from gpsched.cli.policy import parsed
from gpsched.cli.top import answers
from gpsched.cli.top.screens import Ask, Question
from gpsched.cli.top.source import Source
from gpsched.cli.top.table import ProcessTable


_T = TypeVar("_T")


class ActingApp(App[None]):
    """What is changed, and what is said about it. The subclass draws (``draw``) and asks for snapshots (``look``)."""

    def __init__(self, source: Source, *, readonly: bool) -> None:
        super().__init__()
        self.source, self.readonly = source, readonly
        self.snapshot: Snapshot | None = None
        self.said = ""

    def draw(self) -> None:
        """Show what is known now."""
        raise NotImplementedError

    def ask_again(self) -> None:
        """Have the next snapshot now."""
        raise NotImplementedError

    @staticmethod
    def put(widget: Static, text: str) -> None:
        """Only what differs is drawn again."""
        if getattr(widget, "shown", None) != text:
            height = len(text.splitlines())
            other = len(getattr(widget, "shown", "").splitlines()) != height
            widget.shown = text  # type: ignore[attr-defined]
            widget.update(text, layout=other)
            if other:
                widget.styles.height = height
                widget.display = height > 0

    def say(self, text: str) -> None:
        """A message for the next seconds."""
        self.said = text
        self.put(self.screen_stack[0].query_one("#status", Static), text)
        self.set_timer(5.0, lambda: self._unsay(text))

    def _unsay(self, text: str) -> None:
        if self.said == text:
            self.said = ""
            self.draw()

    def process(self, pid: int) -> ProcessView | None:
        """Return what the last snapshot says about the process."""
        views = self.snapshot.processes if self.snapshot else []
        return next((view for view in views if view.pid == pid), None)

    def action_change_class(self) -> None:
        """From latency-critical to best-effort or back."""
        if view := self._chosen():
            new: Class = "be" if view.class_ == "lc" else "lc"
            self._confirm(f"make {view.name} ({view.pid}) {new}?", lambda: self.source.attach(view.pid, new, view))

    def action_detach(self) -> None:
        """Give it its own settings back and leave it alone."""
        if view := self._chosen():
            self._confirm(f"detach {view.name} ({view.pid})?", lambda: self.source.detach(view.pid))

    def action_attach(self) -> None:
        """Ask for pid and class."""
        if self._may_change():
            self.push_screen(Ask("pid and class, like: 4242 be"), self._attach_answered)

    def _attach_answered(self, answer: str | None) -> None:
        if found := self._understood(answers.pid_and_class, answer):
            pid, class_ = found
            self._confirm(f"attach {pid} as {class_}?", lambda: self.source.attach(pid, class_))

    def action_policy(self) -> None:
        """Ask for a setting."""
        if self._may_change():
            self.push_screen(Ask("a setting, like: reservations.be_floor=0.2"), self._policy_answered)

    def _policy_answered(self, answer: str | None) -> None:
        if found := self._understood(parsed, answer):
            section, key, value = found
            self._confirm(f"set {section}.{key} to {value!r}?", lambda: self.source.set({section: {key: value}}))

    def action_pin(self) -> None:
        """Ask for a knob and its value."""
        if self._may_change():
            self.push_screen(Ask("a knob and its value, like: timeslice.be_us=100"), self._pin_answered)

    def _pin_answered(self, answer: str | None) -> None:
        if found := self._understood(answers.knob_and_value, answer):
            name, value = found
            self._confirm(f"pin {name} to {value!r}?", lambda: self.source.pin(name, value))

    def action_unpin(self) -> None:
        """Ask for a knob."""
        if self._may_change():
            self.push_screen(Ask("a knob, like: timeslice.be_us"), self._unpin_answered)

    def _unpin_answered(self, answer: str | None) -> None:
        if found := self._understood(knob, answer):
            name = found.name
            self._confirm(f"unpin {name}?", lambda: self.source.unpin(name))

    def _understood(self, read: Callable[[str], _T], answer: str | None) -> _T | None:
        """What was typed; None, and the reason said, when it makes no sense."""
        try:
            return read(answer) if answer else None
        except UsageError as error:
            self.say(str(error))
            return None

    def _chosen(self) -> ProcessView | None:
        pid = self.query_one(ProcessTable).pid
        if not self._may_change():
            return None
        view = self.process(pid) if pid is not None else None
        if view is None:
            self.say("choose a process first")
        return view

    def _may_change(self) -> bool:
        if self.readonly:
            self.say("refused: read-only")
        return not self.readonly

    def _confirm(self, question: str, change: Callable[[], None]) -> None:
        def answered(yes: bool | None) -> None:
            if yes:
                self.run_worker(lambda: self._change(change), thread=True, group="change", exit_on_error=False)

        self.push_screen(Question(question), answered)

    def _change(self, change: Callable[[], None]) -> None:
        try:
            change()
        except GpschedError as error:
            self.call_from_thread(self.say, str(error))
        else:
            self.call_from_thread(self.say, "done")
            self.call_from_thread(self.ask_again)
