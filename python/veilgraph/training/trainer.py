"""One party of a session that trains.

Every party does the same: the parameters begin, then batch after batch is a run of the entry
`step`. The order of rows and the learning rates are public, and alike at all parties.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from veilgraph.ir.errors import ResourceLimitError, SecurityAbort, UsageError
from veilgraph.ir.roles import given_by
from veilgraph.ir.training import (
    AUDIT,
    CORRECT,
    EVALUATE,
    LOSS,
    REVEAL,
    SHARE,
    START,
    STEP,
    Rate,
    Recipe,
)
from veilgraph.plans import Plan
from veilgraph.runtime.discrete_gaussian import Sampler
from veilgraph.session import Session, require_party
from veilgraph.training.batches import RowOrder, picked
from veilgraph.training.checkpoints import Checkpoints, Progress, agreed, stated
from veilgraph.training.masks import drawn
from veilgraph.training.noise.noises import parts_of, require_stated
from veilgraph.training.plan_steps import (
    Batches,
    inputs_of,
    require_inside,
    require_own,
    require_saved,
    rows_entry,
    rows_of,
    unread_weights,
)
from veilgraph.training.runs.asked import rate_of, require_count, require_seed
from veilgraph.training.runs.data_sets import DataSet
from veilgraph.training.runs.evaluations import (
    Evaluation,
    nothing_counted,
    require_evaluated,
)
from veilgraph.training.runs.reveals import Reveals
from veilgraph.training.runs.told import count_of, require_factors, require_told
from veilgraph.verification.signatures import signature_file

Array = npt.NDArray[np.float32]
Arrays = Mapping[str, npt.ArrayLike]
ROWS_BYTES = 8  # in which an owner says how many rows it has
MOST_ROWS = 1 << 32  # of an owner
_UNASKED = 2  # in place of 0 or 1, of what is nothing to a party


class Trainer:
    """One party of a run that trains, in a `Session` of its own.

    All parties call the same methods in the same order. Nothing is told to a party that the plan
    does not name as a receiver.

    Args:
        plan: a plan, or the path of model.plan.
        party: this party's name.
        config: path of this party's parties.yaml.
        data: rows of this party's own inputs of a step; as many at every party that has some, and
            row i of each belongs together. Where a batch has rows of several owners, each gives its
            own, of all inputs, and as many as it has.
        rows: how many rows there are; needed at a party that has none, but not where owners have
            rows of their own: they tell all parties how many.
        weights: as for `Session`: the parameters as they begin, at their owner, and what is
            frozen. Who goes on from a checkpoint needs them only if some are frozen.
        checkpoint: where `save` writes this party's parts of all states; the file that was there
            becomes NAME.before.
        resume: go on from the newest checkpoint that all parties have, the same at all of them, or
            from the beginning where training broke off before the first. Those that some lack are
            given up.
        store: a folder that `Session.prepare` filled with runs of `step`: steps have their offline
            phase from there, at all parties that are there online or at none. All else runs its own
            in this session, so the weights are given, and who only deals is there.
        seed: of the order of rows, the same at all parties; public. Where owners have rows of
            their own, and share them step by step, each shuffles them in an order that it alone
            knows, the same after a resume.
        options: as for `Session`.

    Attributes:
        step: how many steps are done.
        answers: of which the last `evaluate` counted the correct ones.

    Raises:
        UsageError: a plan that does not train, rows that do not fit it, a checkpoint that training
            would write over, or what `Session` refuses.
        SecurityAbort: a plan that keeps a rate from this party, or what `Session` refuses.
        AccuracyError: rows outside of what the rehearsal saw, margin included; before any is sent.
    """

    def __init__(
        self,
        plan: Plan | str | Path,
        party: str,
        config: str | Path,
        *,
        data: Arrays | None = None,
        rows: int | None = None,
        weights: Any = None,
        checkpoint: str | Path | None = None,
        resume: bool = False,
        store: str | Path | None = None,
        seed: int = 0,
        **options: Any,
    ) -> None:
        require_seed(seed)
        if not isinstance(plan, Plan):
            options.setdefault("signature", signature_file(Path(plan)))
        self.plan = plan if isinstance(plan, Plan) else Plan.load(plan)
        require_party(self.plan, party)
        self.recipe, self.party = Recipe.of(self.plan.manifest.options), party
        require_told(self.plan, self.recipe, party)
        require_stated(self.plan, self.recipe)
        require_saved(self.plan)
        self._data = self._own_rows(rows_entry(self.plan), data)
        own = count_of(self.recipe, party, self._data, rows)
        self._sampler = Sampler()  # of this session alone: no other has its key
        self._shares_rows = rows_entry(self.plan) == SHARE  # all do before the first step here
        self._files = self._checkpoints(checkpoint, resume)
        begins = self._files.origins() if self._files and resume else None
        unread = unread_weights(self.plan, party) if resume and weights is None else None
        self._lacks_weights = unread is not None
        weights = unread if self._lacks_weights else weights
        options |= {"weights": weights, "resume": begins, "store": store, "stored_entry": STEP}
        self.session = Session(self.plan, party, config, **options)
        try:
            saves = self._files is not None if self._keeps else None
            self.require_alike({"a place for checkpoints (--save)": saves})
            self.step, self._began = self._progress(resume)
            self._note()
            self._order = self._ordered(own, seed)
            self._shares = DataSet(self.plan, party, self._order.rows)
        except BaseException as error:
            self.session.__exit__(type(error), error, error.__traceback__)
            raise
        self._saved = self.step if self.session.resumed is not None else None
        self._has_begun = self._began != self.session.id
        self.answers = 0
        self._reveals = Reveals(self.session.state_dir, party, self._began)

    def _checkpoints(self, path: str | Path | None, resume: bool) -> Checkpoints | None:
        if path is not None and not self._keeps:
            raise UsageError(f"{self.party} keeps no state in this plan.", "Leave out --save.")
        if path is None:
            if resume and self._keeps:
                raise UsageError(
                    "--resume goes on from checkpoints, and no file is named.",
                    "Give --save FILE, as before.",
                )
            return None
        files = Checkpoints(Path(path))
        if not resume:
            files.require_none()
        return files

    @property
    def _keeps(self) -> bool:
        """Whether this party has parts of states."""
        return bool(self.plan.party(self.party).states)

    def require_alike(self, has: Mapping[str, bool | None]) -> None:
        """That all parties have the same of these, before anything is run; all ask at once.

        Args:
            has: by what is said of it in an error; None where it is nothing to this party.

        Raises:
            SecurityAbort: one has what another has not.
        """
        own = bytes(_UNASKED if each is None else each for each in has.values())
        told = self.session.answers(own, "what all have alike") | {self.party: own}
        parties = [who for who in self.plan.manifest.parties if who in told]
        for number, what in enumerate(has):
            every = {who: told[who][number] for who in parties}
            found = {who: has_it for who, has_it in every.items() if has_it != _UNASKED}
            if len(set(found.values())) > 1:
                one = next(who for who, has_it in found.items() if has_it)
                other = next(who for who, has_it in found.items() if not has_it)
                raise SecurityAbort(
                    f"{one} has {what}, and {other} has not.",
                    "Give it at all parties, or at none.",
                )

    def _progress(self, resume: bool) -> tuple[int, bytes]:
        """After which step all go on, and the session in which the first was done."""
        resumed, own = self.session.resumed, None
        if resumed is not None:
            own = Progress.unpacked(self.session.note, resumed)
        elif self.plan.party(self.party).states:
            own = Progress(0, self.session.id)
        found = agreed(own, self.session.answers(stated(own), "progress"))
        if self._files is not None and resume:
            self._files.give_up_newer(resumed)
        return found.step, found.began

    def _ordered(self, own: int, seed: int) -> RowOrder:
        """By which rows are taken; their owners say how many they have."""
        batch = self.recipe.batch.rows
        if not batch:
            return RowOrder.of_all(own, self.recipe.rows, seed)
        counts = self._rows_told(own, "rows")
        found = {who: counts.get(who, 0) for who in batch}
        for who, rows in batch.items():
            if not rows <= found[who] <= MOST_ROWS:
                raise SecurityAbort(
                    f"{who} says that it has {found[who]} rows, and gives {rows} to a step.",
                    f"Ask {who}.",
                )
        if self._shares_rows:
            return RowOrder.public(found, batch, seed)
        own_seed = self.session.own_number("order of rows", self._began)
        seeds = {self.party: own_seed} if self.party in batch else {}
        return RowOrder(found, batch, seeds, is_public=False)

    def _own_rows(self, entry: str, given: Arrays | None) -> dict[str, Array]:
        """Rows of all that this party owns of what an entry takes, and of nothing else."""
        found = {} if given is None else given
        rows = rows_of(self.plan, entry, self.recipe, found, self.party)
        require_own(self.plan, entry, self.recipe, found, self.party)
        return rows

    def fit(
        self,
        *,
        rate: Rate,
        epochs: int = 1,
        steps: int | None = None,
        every: int | None = None,
        audit_every: int | None = None,
        on_step: Callable[[int, float | None], None] | None = None,
        on_epoch: Callable[[int, float | None], None] | None = None,
    ) -> list[float]:
        """Trains together with all parties, from step `step` on; with 0 the parameters begin.

        Args:
            rate: the learning rate, or a function of the number of a step; alike at all parties.
            epochs: how often each row is taken; what no batch is left for is not.
            steps: in place of epochs.
            every: after so many steps a checkpoint is saved, and at the end, where this party has a
                place for it; the same at all parties. None saves none. All states are compared with
                their bounds before, where the plan has an audit, so no checkpoint is of an
                overflow.
            audit_every: so many steps after which they are compared besides, the same at all
                parties.
            on_step: called after each step with its number, and its loss where this party
                receives it; with `loss_every`, the mean of several after each so many.
            on_epoch: called after each step that ends an epoch, which are counted from 0 and from
                the first step of all, with its number and the mean loss of those of its steps that
                were done here. It may call what all parties call at once, as `evaluate` or `save`.

        Returns:
            The loss of each step, or the means; [] where this party receives none.

        Raises:
            UsageError: a rate that is none or that the plan's encoding loses, audits of a plan that
                has none, or what `Session.run` refuses.
            AccuracyError: a state that left its bounds; the last checkpoint stands.
            ResourceLimitError: the store is used up. All steps before are done, and are in a
                checkpoint where some are saved.
            SecurityAbort: another party trains with another rate, or with other rows: another
                number of them, seed, first step or number of steps.
        """
        batches = Batches.of(self.plan, self._order, rate_of(rate))
        count = batches.count(epochs, steps)
        first, last = self.step, self.step + count
        batches.require_rates(first, count)
        batches.require_room(first, count)
        every, audit_every = _interval(every, "A checkpoint"), _interval(audit_every, "An audit")
        if audit_every and AUDIT not in self._entries:
            self.audit()  # says why not
        intervals = {"checkpoint interval": str(every), "audit interval": str(audit_every)}
        self._require_alike(batches.facts(first, count) | intervals)
        self._require_stored(first, last, every)
        self._begin()
        if self._shares_rows:
            self._share_rows()
        own = {tensor.name for tensor in inputs_of(self.plan, STEP, self.party)}
        rows = {name: x for name, x in self._data.items() if name in own}
        losses: list[float] = []
        for number, (order, factors) in enumerate(batches.steps(first, count), first):
            self._require_stored(first, last, every)
            given: dict[str, Any] = {**picked(rows, order, self.recipe.batch)}
            self.session.put_state(self._shares.batch(order))
            masks = drawn(self.recipe.masks, self.session.id, number).items()
            mine = {**factors, **{given_by(name, self.party): x for name, x in masks}}
            given |= {name: value for name, value in mine.items() if name in own}
            rate_now = batches.noise_rate(number)
            inputs = self.session.inputs
            given |= parts_of(self.recipe, inputs, self.party, rate_now, self._sampler)
            told = self._run(given, STEP)
            require_factors(factors, told, self.session.outputs, self.party)
            if self.recipe.tells_loss(self.step):
                told = self._run({}, LOSS)
            loss = float(told[LOSS].item()) if LOSS in told else None
            losses += [] if loss is None else [loss]
            saves = every > 0 and (self.step % every == 0 or self.step == last)
            is_asked = audit_every > 0 and self.step % audit_every == 0
            if saves:
                self._keep()
            elif is_asked:
                self.audit()
            if on_step is not None:
                on_step(number, loss)
            if on_epoch is not None and self.step % self.an_epoch == 0:
                own_losses = losses[-self.losses_an_epoch :]
                mean = float(np.mean(own_losses)) if own_losses else None
                on_epoch(number // self.an_epoch, mean)
        return losses

    def _begin(self) -> None:
        """States are what they are at first, once, before anything is made of them."""
        if self._has_begun:
            return
        if self._lacks_weights:
            raise UsageError(
                f"All parties begin anew, and {self.party} gave no weights.",
                "Give model.weights with --weights, as before the first step.",
            )
        self._run({}, START)
        self._has_begun = True

    def _require_stored(self, first: int, last: int, every: int) -> None:
        """ResourceLimitError where no step is left in the store; those that were done are kept."""
        if self.session.left_in_store != 0:
            return
        if every and self.step > first and self.step % every:  # all parties find the same
            self._keep()
        is_kept = self._saved == self.step
        kept = f" The checkpoint after step {self.step} is saved." if is_kept else ""
        raise ResourceLimitError(
            f"The store is used up after step {self.step} of {last}.{kept}",
            "Go on with `resume` (--resume), and a store that `prepare --entry step` filled anew, "
            "or none.",
        )

    def _keep(self) -> None:
        """A checkpoint, where this party has a place for it, once an audit found no overflow."""
        if AUDIT in self._entries:
            self.audit()
        if self._files is not None:
            self.save()

    def _share_rows(self) -> None:
        """All rows, once a session: no checkpoint holds them."""
        for order in self._order.shared():
            self._run(picked(self._data, order, self.recipe.batch), SHARE)
            self._shares.take(order, self.session.state(self._shares.names))
        self._shares_rows = False

    def _require_alike(self, facts: Mapping[str, str]) -> None:
        """Rows that do not belong together train a model of noise, and nobody would see it."""
        for peer, fact in self.session.differing(facts):
            raise SecurityAbort(
                f"{peer} trains with another {fact} than {self.party}.",
                "Agree on the rows, --seed, --epochs, --save-every and --audit-every.",
            )

    def evaluate(self, data: Arrays | None = None) -> dict[str, Array]:
        """The model's outputs for all rows, in their order; {} where this party receives none.

        Where the plan says so, a party receives under `correct` how many of all answers are their
        labels', and the owner of these gives them.

        All parties learn how many rows there are. A run takes a whole batch, so the last one
        repeats a row where rows do not fill it. Where a batch has rows of several owners, outputs
        are batch after batch, and in each those of one owner's rows after those of another's.

        Args:
            data: rows of this party's own inputs of the model, and its labels where answers are
                counted; None at one that has none.

        Raises:
            UsageError: a plan that tells nobody, rows that do not fit it, no rows, or owners of
                inputs who have another number of them.
        """
        require_evaluated(self.plan)
        rows = self._own_rows(EVALUATE, data)
        own = min(map(len, rows.values()), default=0)
        evaluation = Evaluation.of(self.recipe, self._rows_told(own, "rows to evaluate"))
        self._begin()
        counts = CORRECT in self._entries
        if counts:
            evaluation.require_counted()
            self.session.put_state(nothing_counted(self.plan, self.party))
        found = []
        for number, batch in enumerate(evaluation.batches(rows)):
            given = batch | evaluation.counted(self.plan, self.party, number)
            found.append(evaluation.kept(self._run(given, EVALUATE), number))
        told = {name: np.concatenate([each[name] for each in found]) for name in found[0]}
        if counts:
            self.answers = evaluation.answers
            told |= evaluation.possible(self._run({}, CORRECT))
        return told

    def _rows_told(self, own: int, topic: str) -> dict[str, int]:
        """How many rows each party says that it has, in the plan's order of parties."""
        told = self.session.answers(own.to_bytes(ROWS_BYTES), topic)
        counts = {who: int.from_bytes(content) for who, content in told.items()} | {self.party: own}
        return {who: counts[who] for who in self.plan.manifest.parties if who in counts}

    def reveal(self) -> dict[str, Array]:
        """The parameters at a party that receives them, by each name of a module's state_dict.

        Others get {}.

        Raises:
            UsageError: a plan that tells nobody.
        """
        if REVEAL not in self._entries:
            raise UsageError(
                "This plan reveals its parameters to nobody.",
                "Compile it with `reveal` of `parameters`.",
            )
        self._begin()
        return self.recipe.named(self._run({}, REVEAL), self.step)

    def audit(self) -> None:
        """Compares all states with their bounds; every party that computes learns one bit.

        Raises:
            AccuracyError: one is outside; the last checkpoint stands.
            UsageError: a plan without an audit.
        """
        if AUDIT not in self._entries:
            raise UsageError(
                "This plan has no audit: nothing tells whether a state left its bounds.",
                "Compile it without `audit=False` or --no-audit.",
            )
        self._begin()
        require_inside(self._run({}, AUDIT), self.step, self._saved)

    def _run(self, given: Mapping[str, Any], entry: str) -> dict[str, Array]:
        told = self.session.run(given, entry)
        self.step += entry == STEP
        self._note()
        return told

    def _note(self) -> None:
        """Lets the session know where training stands: it counts what is told by that."""
        self.session.note = Progress(self.step, self._began).packed()

    @property
    def revealed(self) -> dict[str, tuple[int, int]]:
        """By entry: runs since training began that told somebody something, and repeated ones.

        A run after a resume is one more, though it is of a step that was done before.
        """
        return self._reveals.counts()

    @property
    def an_epoch(self) -> int:
        """Steps that take each row once; what fills no batch is not taken."""
        return self._order.an_epoch

    @property
    def losses_an_epoch(self) -> int:
        """How many losses, or means of several, who receives them is told in an epoch."""
        return max(1, self.an_epoch // (self.recipe.loss_every or 1))

    @property
    def _entries(self) -> tuple[str, ...]:
        return tuple(self.plan.manifest.entries)

    def save(self) -> None:
        """Writes this party's parts of all states, encrypted; as `Session.save_state`.

        They are not looked at: `fit` audits them before each checkpoint of its own, and so does who
        calls `audit` at all parties before.

        Raises:
            UsageError: a party that was told no place for it, or states that have not begun.
        """
        if self._files is None:
            raise UsageError(f"{self.party} has no place for checkpoints.", "Give `checkpoint`.")
        if not self._has_begun:
            raise UsageError(
                "There is no state to save before training begins.",
                "Call `fit`, `evaluate`, `audit` or `reveal` first.",
            )
        self.session.save_state(self._files.path)
        self._saved = self.step

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.session.__exit__(kind, error, trace)


def _interval(every: int | None, what: str) -> int:
    """Steps between checkpoints, or what else; 0 for none."""
    return 0 if every is None else require_count(every, what + " each {} steps")
