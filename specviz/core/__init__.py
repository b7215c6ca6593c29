"""The vocabulary of a run: sampling, dice, tree, state, parts, the round, methods. Torch and the standard
library only; everything else is built on it."""
from .lazy_scalars import LazyScalar, token_tensor, numbers, plain, read, select_rows, to_device
from .method import AS_PUBLISHED, COMPARED, EXACTNESS, Family, Kit, Knob, Method
from .parts import (StopBelowProbability, Budget, Drafter, Early, JointPolicy, Outcome, Parts, Policy, Scores, Step, Target, Decision, IncompatibleVerifier,
                    Verdict, Verifier, has_nan, compatible_verifiers, never_stop)
from .round import BrokenModel, Proposal, clip, conclude, open_run, play, propose, within
from .sampling import InvalidDistribution, RandomStreams, SingleStream, Sampling, argmax_tokens, check_distributions
from .state import Clock, Costs, FixedCosts, State, common
from .draft_steps import UnbatchedCall, ForwardPass, DraftSteps, run_alone
from .tree import CHOSEN, IID, WITHOUT_REPLACEMENT, DraftTree, Entry, Origin, TreeBuilder, DeviceTopology

__all__ = [name for name, value in list(globals().items()) if not name.startswith("_") and type(value).__name__ != "module"]
