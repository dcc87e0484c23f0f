"""Dates and times of PostgreSQL as numbers, over its whole range: 4713 BC to 5874897 AD.

Belongs here: texts that Arrow does not read, which are years before 1 and after 9999. Python's own types have
neither.
"""

from __future__ import annotations

import re

INFINITE = {"infinity": 1, "-infinity": -1}
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31, in days since 1970."""
MICROSECONDS_PER_DAY = 86_400_000_000
MAX_MICROSECONDS = 2**63 - 1
"""Since 1970, in the year 294247. PostgreSQL's own times end with 294276, as it counts from 2000."""
_SECONDS_UNTIL_2000 = 946_684_800
_DATE = re.compile(r"(\d{4,7})-(\d\d)-(\d\d)( BC)?")
_TIME = re.compile(r"(\d{4,7})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?(?:\+00)?( BC)?")


def days(text: str) -> int:
    """Return a date in days since 1970.

    Raises:
        ValueError: it is no date, or an infinite one.
    """
    if (found := _DATE.fullmatch(text)) is None:
        raise ValueError("it is not a date")
    return _days(_year(found[1], found[4]), int(found[2]), int(found[3]))


def microseconds(text: str) -> int:
    """Return a time in UTC, or without a zone, in microseconds since 1970.

    Raises:
        ValueError: it is no time, or an infinite one.
    """
    if (found := _TIME.fullmatch(text)) is None:
        raise ValueError("it is not a time in UTC")
    day = _days(_year(found[1], found[8]), int(found[2]), int(found[3]))
    seconds = int(found[4]) * 3_600 + int(found[5]) * 60 + int(found[6])
    return day * MICROSECONDS_PER_DAY + seconds * 1_000_000 + int((found[7] or "").ljust(6, "0"))


def seconds_since_1970(microseconds_since_2000: int) -> float:
    """Return a time of the log's messages, which count from 2000, in seconds since 1970."""
    return _SECONDS_UNTIL_2000 + microseconds_since_2000 / 1_000_000


def microseconds_since_1970(microseconds_since_2000: int) -> int:
    """Return a time of the log's messages, which count from 2000, in microseconds since 1970."""
    return _SECONDS_UNTIL_2000 * 1_000_000 + microseconds_since_2000


def _year(digits: str, era: str | None) -> int:
    """Return the astronomical year: 1 BC is 0."""
    return int(digits) if era is None else 1 - int(digits)


def _days(year: int, month: int, day: int) -> int:
    """Return the days since 1970 in the Gregorian calendar, whose leap years repeat every 400."""
    if not (1 <= month <= 12 and 1 <= day <= 31):
        raise ValueError("it is not a day of the calendar")
    # Years are counted from March, so that the day of a leap year is the last one.
    year, month = (year, month - 3) if month > 2 else (year - 1, month + 9)
    of_year = (153 * month + 2) // 5 + day - 1
    return 365 * year + year // 4 - year // 100 + year // 400 + of_year - 719_468
