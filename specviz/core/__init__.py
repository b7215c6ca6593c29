"""The vocabulary of a run: sampling, dice, tree, state, parts, the round, methods. Torch and the standard
library only; everything else is built on it."""
from .later import Later, ids_on, numbers, plain, read, rows_of, sent
from .method import AS_PUBLISHED, COMPARED, EXACTNESS, Family, Kit, Knob, Method
from .parts import (Below, Budget, Drafter, Early, JointPolicy, Outcome, Parts, Policy, Scores, Step, Target, Trial, UnlawfulPair,
                    Verdict, Verifier, has_nan, lawful, never)
from .round import BrokenModel, Proposal, clip, conclude, open_run, play, propose, within
from .sampling import BrokenLaw, Dice, OneStream, Sampling, likeliest, whole_laws
from .state import Clock, Costs, FixedCosts, State, common
from .steps import Alone, Pass, Steps, by_itself
from .tree import CHOSEN, IID, WITHOUT_REPLACEMENT, DraftTree, Entry, Origin, TreeBuilder, Unread

__all__ = [name for name, value in list(globals().items()) if not name.startswith("_") and type(value).__name__ != "module"]
