"""Protocol suites: one file each, read beside its paper. `SUITES` is all there are."""

from veilgraph.targets.suite import Suite
from veilgraph.targets.suites.additive import ADDITIVE
from veilgraph.targets.suites.additive_functions import FUNCTIONS as ADDITIVE_FUNCTIONS
from veilgraph.targets.suites.cleartext import CLEARTEXT
from veilgraph.targets.suites.rep3_comparisons import REP3
from veilgraph.targets.suites.rep3_functions import FUNCTIONS as REP3_FUNCTIONS
from veilgraph.targets.variants import Rounding

for name, variants in REP3_FUNCTIONS.items():
    REP3.offer(name, variants, Rounding.KNOWN)
for name, variants in ADDITIVE_FUNCTIONS.items():
    ADDITIVE.offer(name, variants, Rounding.KNOWN)
SUITES: dict[str, Suite] = {suite.name: suite for suite in (REP3, ADDITIVE, CLEARTEXT)}
