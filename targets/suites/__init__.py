"""Protocol suites: one file each, read beside its paper. `SUITES` is all there are."""

from veilgraph.targets.suite import Suite
from veilgraph.targets.suites.additive import ADDITIVE
from veilgraph.targets.suites.cleartext import CLEARTEXT
from veilgraph.targets.suites.rep3_comparisons import REP3
from veilgraph.targets.suites.rep3_functions import FUNCTIONS
from veilgraph.targets.variants import Rounding

REP3.include(FUNCTIONS, Rounding.KNOWN)
SUITES: dict[str, Suite] = {suite.name: suite for suite in (REP3, ADDITIVE, CLEARTEXT)}
