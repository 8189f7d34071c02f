"""Durations."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpsched.adaptive.errors import UsageError
from gpsched.adaptive.units import DurationError, SpanError, format_duration, parse_duration, parse_span


@pytest.mark.parametrize(
    ("text", "us"), [("300us", 300), ("300µs", 300), ("5ms", 5000), ("1.5s", 1_500_000), (" 2 ms ", 2000)]
)
def test_reads_number_and_unit(text: str, us: float) -> None:
    assert parse_duration(text) == pytest.approx(us)


@pytest.mark.parametrize("text", ["", "5", "ms", "-5ms", "0ms", "5 minutes", "5ms5us", "1e3us", "nan ms", "٣ms5"])
def test_refuses_what_is_no_duration(text: str) -> None:
    with pytest.raises(UsageError, match="300us, 5ms"):
        parse_duration(text)


@given(st.text(max_size=20))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        us = parse_duration(text)
    except DurationError as error:
        message = str(error)
    else:
        assert us > 0
        return
    assert repr(text) in message


@pytest.mark.parametrize(("us", "text"), [(1, "1 µs"), (2048, "2.05 ms"), (1_000_000, "1 s"), (999, "999 µs")])
def test_writes_the_shortest_unit(us: float, text: str) -> None:
    assert format_duration(us) == text


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("15m", 900), ("15min", 900), ("1h", 3600), ("1.5d", 129_600)]
)
def test_reads_stretches_of_time(text: str, seconds: float) -> None:
    assert parse_span(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "h", "0h", "-1h", "5ms", "1 hour", "1e3s", "٣h", "9999999999s"])
def test_refuses_what_is_no_stretch_of_time(text: str) -> None:
    with pytest.raises(SpanError, match="90s, 15m, 1h, 2d"):
        parse_span(text)
