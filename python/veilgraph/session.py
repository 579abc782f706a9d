"""A party of a session, in the shape of `onnxruntime.InferenceSession`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

from veilgraph.ir.errors import UsageError
from veilgraph.ir.plan import Phase, Tensor
from veilgraph.plans import Plan
from veilgraph.runtime.joining import config_of, join
from veilgraph.runtime.transcript import Transcript
from veilgraph.runtime.weights import load_weights


class Session:
    """One party, connected with the others; weights are shared once, then it runs inferences.

    Args:
        plan: a plan, or the path of model.plan; the same at every party.
        party: this party's name.
        config: path of this party's parties.yaml.
        weights: path of model.weights, or arrays by name; the owner of the weights gives them.
        device: where to compute.
        threads: that kernels may use.
        isa: instruction set of the kernels; the best of this CPU if None.
        insecure_plaintext: no TLS, for measurements; refused beyond loopback.
        timeout_seconds: how long a peer may be silent, in place of parties.yaml's.

    Raises:
        UsageError: a file, a name or an option that makes no sense.
        PeerError: a peer that is lost, silent or shows another certificate.
        SecurityAbort: plans, weights or sessions that differ, or a replay.
    """

    def __init__(
        self,
        plan: Plan | str | Path,
        party: str,
        config: str | Path,
        *,
        weights: str | Path | Mapping[str, npt.ArrayLike] | None = None,
        device: str = "cpu",
        threads: int = 1,
        isa: str | None = None,
        insecure_plaintext: bool = False,
        timeout_seconds: float | None = None,
    ) -> None:
        self.plan = plan if isinstance(plan, Plan) else Plan.load(plan)
        if party not in self.plan.manifest.parties:
            names = ", ".join(self.plan.manifest.parties)
            raise UsageError(f"{party} is no party of this plan.", f"Its parties are {names}.")
        if isinstance(weights, str | Path):
            weights = load_weights(weights, self.plan.digest)
        program = self.plan.party(party)
        if program.weights and weights is None:
            raise UsageError(
                f"{party} owns the weights, and none were given.",
                "Give model.weights, which `compile` wrote beside the plan, with --weights.",
            )
        self.transcripts: list[Transcript] = []
        self._party = join(
            self.plan,
            config_of(config, party),
            device=device,
            threads=threads,
            isa=isa,
            insecure_plaintext=insecure_plaintext,
            timeout_seconds=timeout_seconds,
        )
        try:
            self.setup = self._party.share_weights(weights or {})
        except BaseException as error:
            self._party.__exit__(type(error), error, error.__traceback__)
            raise

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """What this party gives to each run."""
        return self._party.program.inputs

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """What this party gets from each run."""
        return self._party.program.outputs

    @property
    def setup_seconds(self) -> float:
        return self.setup.phases[Phase.SETUP].seconds

    @property
    def profile(self) -> dict[str, tuple[int, int]]:
        """Calls and nanoseconds by kernel, since the session began."""
        return self._party.device.profile

    def run(self, inputs: Mapping[str, npt.ArrayLike]) -> dict[str, npt.NDArray[np.float32]]:
        """One inference together with all other parties.

        Args:
            inputs: this party's own, by name; {} for one that has none.

        Returns:
            This party's outputs by name, float32; {} where it receives none.
        """
        outputs, transcript = self._party.infer(inputs)
        self.transcripts.append(transcript)
        return outputs

    def close(self) -> None:
        self._party.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._party.__exit__(kind, error, trace)
