"""A policy over a table: rows and names in, names out; a policy over arrays does the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Self, final

from numpy.typing import ArrayLike

from kernel_bandits.actions import Box
from kernel_bandits.arrays import FloatArray
from kernel_bandits.boxes.constraints import Constraint
from kernel_bandits.commit import Steps
from kernel_bandits.dictionaries import DictionaryRule, Kors
from kernel_bandits.errors import InputError
from kernel_bandits.features.description import Features
from kernel_bandits.features.offers import Action, Offer
from kernel_bandits.features.rows import FrameLike, RowLike, as_rows
from kernel_bandits.features.translator import Mask, Translator
from kernel_bandits.features.values import shown
from kernel_bandits.policies.decision import Decision
from kernel_bandits.policies.policy import Policy
from kernel_bandits.policies.posterior_policy import take_batch
from kernel_bandits.policies.table_records import NamedDecision, named_decision
from kernel_bandits.policies.table_reports import TableReports
from kernel_bandits.policies.ucb import UpperConfidenceBound
from kernel_bandits.posteriors.base import Prediction

_KORS = Kors()


@final
class TablePolicy(TableReports):
    """Chooses among arms or rows for a row of a table, and learns from rewards.

    It encodes rows of ``features`` for a fresh ``policy`` over arrays, and puts the names back. Unknown levels and arms
    are added with their first reward.

    Like every :class:`Policy`, it serves one thread at a time.
    """

    def __init__(self, policy: Policy, features: Features) -> None:
        if not isinstance(features, Features):
            raise InputError(f"features: expected kb.Features(context=…, actions=…), got {shown(features)}.")
        if policy.round_index or policy.pending:
            raise InputError("policy: expected one that has learned nothing yet; build it with features= at once.")
        self.inner = policy
        self.translator = Translator(features)

    def constrained(
        self,
        constraints: Mapping[str, Constraint],
        *,
        safe_actions: Offer | None = None,
        if_unsafe: Literal["error", "flag"] = "error",
        dictionary: DictionaryRule | None = _KORS,
    ) -> Self:
        """Keep measured outputs within limits from the first round on, and return the policy.

        :meth:`update` and :meth:`tell` take the outputs from then on.

        Args:
            constraints: limits by the name of an output: ``{"pressure": Below(8.0, kernel)}``; the kernel compares
                encoded joint points.
            safe_actions: arms or rows known to be safe in every context, to begin with, as for :meth:`select`.
            if_unsafe: what to do when no action is known to be safe: an error, or the least unsafe, flagged.
            dictionary: the rule of the posteriors of outputs, or None for exact ones.
        """
        inner, vectors = self._constrainable("constrained"), None
        if safe_actions is not None:
            vectors, settled = self.translator.actions(self.translator.offered(safe_actions))
            if not settled:
                raise InputError(
                    "safe_actions: expected arms and levels that are described, got one that is not known yet; name it "
                    "in kb.Arms([…]) or kb.Categorical([…])."
                )
        inner.constrained(constraints, safe_actions=vectors, if_unsafe=if_unsafe, dictionary=dictionary)
        return self

    def predict_outputs(self, context: RowLike, actions: Offer | None = None) -> dict[str, Prediction]:
        """Return mean and standard deviation of each constrained output, by name, for each action; writes nothing."""
        return self._constrainable("predict_outputs").predict_outputs(*self.encode(context, actions))

    def _constrainable(self, verb: str) -> UpperConfidenceBound:
        if not isinstance(self.inner, UpperConfidenceBound):
            raise InputError(f"{verb}: {type(self.inner).__name__} takes no constraints; use ek_ucb or k_ucb.")
        return self.inner

    def select(self, context: RowLike, actions: Offer | None = None, mask: Mask | None = None) -> NamedDecision:
        """Choose an action for a row. Changes neither the model nor what is known of levels.

        Args:
            context: a dict, a row of a pandas or polars frame, or a NumPy record, with the columns that were described.
            actions: the names of the arms on offer, all that are known unless given; or rows of features, or a mapping
                from names to rows; or a box, where actions are described by numbers.
            mask: which of them may be played: a mapping from names to booleans, where names that are left out may be;
                or one boolean for each.
        """
        vector, choices, rows, offered, settled = self._offer(context, actions, mask)
        return named_decision(self.translator, self.inner.select(vector, choices, rows), context, offered, settled)

    def _offer(
        self, context: RowLike, actions: Offer | None, mask: Mask | None
    ) -> tuple[FloatArray, FloatArray | Box, ArrayLike | None, Sequence[Action], bool]:
        """Return context, actions and mask for the policy over arrays, the actions by name, and if all is settled."""
        table = self.translator
        vector, settled = table.context(context)
        if isinstance(actions, Box):
            if mask is not None:
                raise InputError("mask: a box has no rows to leave out; offer a smaller box.")
            return vector, table.box(actions), None, (), settled
        offered = table.offered(actions)
        vectors, known = table.actions(offered)
        rows = None if mask is None else table.mask(mask, offered)
        return vector, vectors, rows, offered, settled and known

    def update(
        self,
        context: RowLike | NamedDecision,
        action: Action | None = None,
        reward: float | None = None,
        *,
        outputs: Mapping[str, float] | None = None,
    ) -> None:
        """Learn the reward of an action: ``update(decision, reward=1.0)``, or ``update(row, action, 1.0)``.

        Either succeeds or changes nothing. A decision of :meth:`ask` is learned by :meth:`tell`, and here only once it
        has expired.

        Args:
            context: a decision, or the row of a context.
            action: the arm or the row that was played; left out for a decision.
            reward: a finite number; larger is better.
            outputs: what was measured besides, by the names of the policy's constraints.
        """
        if isinstance(context, NamedDecision):
            decision: NamedDecision = context
            if action is not None:
                raise InputError("update: a decision knows its action; write update(decision, reward=…).")
            self.inner._ledger.require_unlearned("update", decision.id)
            if reward is None:
                raise InputError("reward: expected a number, got none; write update(decision, reward=…).")
            if decision.settled:
                self.inner._update(decision.encoded.context, decision.encoded.action, reward, (), 1.0, outputs)
                return
            context, action = decision.context, decision.action
        elif action is not None:
            self.translator.require_played([action])
        if action is None or reward is None:
            raise InputError("update: expected a row, an action and a reward, or a decision and reward=….")
        table = self.translator
        vector, settled = table.context(context)
        vectors, known = table.actions([action])
        # what was never met is learned with its first reward, as it was encoded just now
        met = [] if settled and known else [(table.learn, context, action)]
        self.inner._update(vector, vectors[0], reward, met, 1.0, outputs)

    def select_many(self, contexts: FrameLike, actions: Offer | None = None) -> list[NamedDecision]:
        """Choose an action for each of many rows with the current model, at the speed of matrix products.

        Args:
            contexts: a frame, a list of dicts, or a NumPy structured array.
            actions: offered in every round, as for :meth:`select`.
        """
        rows, table = as_rows("contexts", contexts), self.translator
        vectors, settled = table.contexts(rows)
        if isinstance(actions, Box):
            decisions = self.inner.select_many(vectors, table.box(actions))
            offered: Sequence[Action] = ()
        else:
            offered = table.offered(actions)
            encoded, known = table.actions(offered)
            settled = settled and known
            decisions = self.inner.select_many(vectors, encoded)
        return [
            named_decision(table, decision, row, offered, settled)
            for decision, row in zip(decisions, rows, strict=True)
        ]

    def select_batch(
        self, contexts: FrameLike, actions: Offer | None = None, *, batch_variance_limit: float = 10.0
    ) -> list[NamedDecision]:
        """Decide for the next rows before any of their rewards arrives, as far as that is safe.

        Decisions are pending, as those of :meth:`ask`: pass their rewards to :meth:`tell_many`, then call this with the
        remaining rows. :meth:`PosteriorPolicy.select_batch` says where a batch ends.

        Args:
            contexts: a frame, or rows, in the order in which they are to be served.
            actions: offered in every round, as for :meth:`select`.
            batch_variance_limit: at least 1; at 1 a batch is one decision.

        Returns:
            Decisions for the first rows, at least one.
        """
        rows, table = as_rows("contexts", contexts), self.translator
        # a bad row far down is refused before the first decision is made
        table.contexts(rows)
        if not len(rows):
            raise InputError("contexts: expected at least one row, got none.")
        asked = (self.ask(row, actions) for row in rows)
        posterior = self._model("select_batch").posterior
        return take_batch(posterior, asked, lambda decision: decision.encoded, batch_variance_limit)

    def update_many(
        self,
        contexts: FrameLike | Sequence[NamedDecision],
        actions: Offer | None = None,
        rewards: ArrayLike | None = None,
    ) -> None:
        """Learn a log of rounds in order; the model is that of :meth:`update` one by one, reached faster.

        Bad input changes nothing. If the kernel fails in the middle, the rounds before that stay learned.

        Args:
            contexts: a frame, or rows; or decisions, which know their actions.
            actions: the arm or the row that was played in each; left out for decisions.
            rewards: shape (n,).
        """
        if rewards is None:
            raise InputError("rewards: expected one number for each round, got none; write rewards=….")
        if isinstance(contexts, (list, tuple)) and contexts and isinstance(contexts[0], NamedDecision):
            if actions is not None:
                raise InputError("update_many: decisions know their actions; leave actions out.")
            decisions: Sequence[NamedDecision] = contexts
            for one in decisions:
                self.inner._ledger.require_unlearned("update_many", one.id)
            contexts, actions = [one.context for one in decisions], [one.action for one in decisions]
        else:
            self.translator.require_played(self.translator.offered(actions))
        rows, played = as_rows("contexts", contexts), self.translator.offered(actions)
        if len(rows) != len(played):
            raise InputError(
                f"contexts and actions: expected as many of each, got {len(rows)} and {len(played)}; actions are those "
                "that were played, one for each row."
            )
        vectors, encoded, learned = self.translator.log(rows, played)
        self.inner._update_many(vectors, encoded, rewards, [(setattr, self, "translator", learned)])

    def ask(self, context: RowLike, actions: Offer | None = None, mask: Mask | None = None) -> NamedDecision:
        """Choose an action whose reward arrives later; :meth:`tell` learns it. The arguments are those of select."""
        vector, choices, rows, offered, settled = self._offer(context, actions, mask)

        def met(decision: Decision) -> Steps:
            # the model counts the chosen point from now on, so its encoding must stay
            named = named_decision(self.translator, decision, context, offered, settled)
            return [] if settled else [(self.translator.learn, named.context, named.action)]

        decision = self.inner._ask(vector, choices, rows, met)
        return named_decision(self.translator, decision, context, offered, settled=True)

    def tell(self, id: int | NamedDecision, reward: float, *, outputs: Mapping[str, float] | None = None) -> None:
        """Learn the reward of a decision of :meth:`ask`; in any order, once each.

        Args:
            id: the decision, or its ``id``.
            reward: a finite number; larger is better.
            outputs: as for :meth:`update`.
        """
        self.inner.tell(self._decision(id), reward, outputs=outputs)

    def await_many(self, contexts: FrameLike, actions: Sequence[Action]) -> list[int]:
        """Await the rewards of actions that were played already; return the ids that :meth:`tell` knows them by.

        Args:
            contexts: a frame, or rows.
            actions: the arm or the row that was played in each.
        """
        rows, played = as_rows("contexts", contexts), self.translator.offered(actions)
        if len(rows) != len(played):
            raise InputError(
                f"contexts and actions: expected as many of each, got {len(rows)} and {len(played)}; actions are those "
                "that were played, one for each row."
            )
        self.translator.require_played(played)
        vectors, encoded, learned = self.translator.log(rows, played)
        return self.inner._await_many(vectors, encoded, [(setattr, self, "translator", learned)])

    def tell_many(
        self,
        ids: Sequence[int | NamedDecision],
        rewards: ArrayLike,
        *,
        outputs: Mapping[str, ArrayLike] | None = None,
    ) -> None:
        """Learn the rewards of several decisions of :meth:`ask`.

        Args:
            ids: of n decisions, or the decisions.
            rewards: shape (n,).
            outputs: of constraints by name, shape (n,), NaN where one was not measured.
        """
        if not isinstance(ids, Iterable):
            raise InputError(f"ids: expected those of several decisions, got {shown(ids)}.")
        plain = [one if type(one) is int else self._decision(one) for one in ids]
        self.inner.tell_many(plain, rewards, outputs=outputs)

    def expire(self, id: int | NamedDecision) -> None:
        """Give up on a decision of :meth:`ask` whose reward will never arrive.

        Args:
            id: the decision, or its ``id``.
        """
        self.inner.expire(self._decision(id))

    def expire_before(self, id: int | NamedDecision) -> tuple[int, ...]:
        """Give up on all pending decisions that were asked for before a certain one; returns their ids.

        Args:
            id: the decision, or its ``id``.
        """
        return self.inner.expire_before(id.id if isinstance(id, NamedDecision) else id)  # type: ignore[arg-type]

    @staticmethod
    def _decision(value: int | NamedDecision) -> int | Decision:
        return value.encoded if isinstance(value, NamedDecision) else value


# It has the verbs of a policy; files and type checks at run time take it for one.
Policy.register(TablePolicy)
