from ...core import Family

FAMILY = Family("Draft length", "How far to write ahead, decided anew every round.", place=2)
