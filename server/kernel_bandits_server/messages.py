"""Requests and responses: their types give the checks of a body and the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec
from litestar.dto import AbstractDTO, DTOFieldDefinition
from litestar.exceptions import ClientException
from litestar.openapi.spec import Reference, Schema
from litestar.typing import FieldDefinition
from msgspec import UNSET, Meta, Struct, UnsetType

from kernel_bandits_server.wording import sentence

T = TypeVar("T")
LARGEST = 1e100
_ID = "1 to 256 letters, digits or any of . _ ~ : @ = + -, and neither . nor .. alone"
# clients and proxies remove . and .. from an address before they send it
NewId = Annotated[
    str, Meta(pattern=r"^(?!\.{1,2}$)[A-Za-z0-9._~:@=+-]{1,256}$", min_length=1, max_length=256, description=_ID)
]
Id = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._~:@=+-]{1,256}$", min_length=1, max_length=256, description=_ID)]
Number = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
Probability = Annotated[float, Meta(gt=0.0, le=1.0)]
Row = dict[str, Any]
Action = str | int | float | Row
Offer = list[Action] | dict[str, Row]


class DecisionRequest(Struct, forbid_unknown_fields=True):
    """Choose an action for a context."""

    context: Row  # a value for each column
    # of the decision; the same id and context again return the first decision. A fresh one unless given
    id: NewId | None = None
    # names of arms, rows of features, or rows by name, each once; all known arms unless given
    actions: Offer | None = None
    # a range or levels for each column of the actions; that of the loop's file unless given
    box: dict[str, list[str | bool | Number]] | None = None
    excluded: list[Action] = []  # names that may not be chosen
    deferred: bool = False  # whether it is not certain to be played
    visitor: Annotated[str, Meta(min_length=1, max_length=256)] | None = None  # whose decisions all belong to one group
    current: Action | None = None  # what is played today, where the control group goes on with it
    played: Action | None = None  # what was played, for a loop that only watches
    played_probability: Probability | None = None  # with which it was played
    details: bool = False  # whether the response has ``mean``, ``std``, ``model`` and ``time``


class Decision(Struct, omit_defaults=False):
    """An action to play."""

    id: str  # of the decision
    action: Any  # as it was offered
    arm: Any  # its name; null where actions have none
    probability: float | None  # with which the loop as a whole plays it here; null where that is not known
    probabilities: list[float] | None  # of all offered actions, in order
    group: str  # ``policy``, ``control`` or ``challenger``
    deferred: bool  # whether it counts once it is activated
    repeated: bool | UnsetType = UNSET  # whether it was made by an earlier request
    played: Any | UnsetType = UNSET  # what the caller played, for a loop that only watches
    mean: float | UnsetType | None = UNSET  # its expected reward
    std: float | UnsetType | None = UNSET  # the standard deviation of its expected reward
    model: int | UnsetType = UNSET  # the number of the last event that the model knew
    time: float | UnsetType = UNSET  # in seconds since 1970
    reward: float | UnsetType | None = UNSET  # that it earned
    events: dict[str, float] | UnsetType = UNSET  # when what happened to it


class RewardRequest(Struct, forbid_unknown_fields=True):
    """What a decision earned."""

    reward: Number


class OneReward(Struct, forbid_unknown_fields=True):
    """What one of many decisions earned."""

    id: Id
    reward: Number


class RewardsRequest(Struct, forbid_unknown_fields=True):
    """What many decisions earned."""

    rewards: list[OneReward]


class Outcome(Struct, omit_defaults=True):
    """What became of a reward, an activation or an expiry."""

    id: str
    status: str
    message: str | None = None


class Outcomes(Struct):
    """What became of many rewards, with the number of each status."""

    counts: dict[str, int]
    results: list[Outcome]


class ImportedRow(Struct, forbid_unknown_fields=False):
    """A round of another log: what was seen, played and earned. Further keys are left aside."""

    id: Id  # under which it is taken once
    context: Row  # a value for each column
    action: Action  # the name of an arm, or a row of features
    reward: Number  # that it earned
    propensity: Probability | None = None  # the probability with which it was played; kept for the export


class ImportRequest(Struct, forbid_unknown_fields=True):
    """Rounds of another log."""

    rows: list[ImportedRow]


class Imported(Struct):
    """How many rows were learned, and how many had been before."""

    imported: int
    repeated: int


class ArmRequest(Struct, forbid_unknown_fields=True):
    """An arm that is added or described."""

    features: Row | None = None  # a value for each of the arms' columns, where they have any


class ShareRequest(Struct, forbid_unknown_fields=True):
    """The challenger's traffic."""

    share: Annotated[float, Meta(ge=0.0, le=1.0)]


class Problem(Struct):
    """Why a request is refused: a word for programs, and a sentence for people."""

    code: str
    message: str


class Refusal(Struct):
    """A request that was refused; nothing was changed."""

    error: Problem


class Body(AbstractDTO[T]):
    """Reads a body strictly as its type, in one step, and says in words what is wrong with it."""

    def decode_bytes(self, value: bytes) -> Any:
        try:
            return msgspec.json.decode(value, type=self.model_type)
        except msgspec.ValidationError as reason:
            if "out of range" in str(reason):
                raise _not_json(reason) from reason
            raise ClientException(sentence(reason, self.model_type, _read(value)), status_code=422) from reason
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as reason:
            raise _not_json(reason) from reason

    def decode_builtins(self, value: Any) -> Any:
        return msgspec.convert(value, self.model_type)

    @classmethod
    def generate_field_definitions(cls, model_type: type[Any]) -> Any:
        del model_type  # no second type is made
        return iter(list[DTOFieldDefinition]())

    @classmethod
    def detect_nested_field(cls, field_definition: FieldDefinition) -> bool:
        del field_definition  # the type reads its parts itself
        return False

    @classmethod
    def create_for_field_definition(cls, field_definition: Any, handler_id: str, backend_cls: Any = None) -> None:
        """Need no second type to be made for the handler."""

    @classmethod
    def create_openapi_schema(
        cls, field_definition: FieldDefinition, handler_id: str, schema_creator: Any
    ) -> Reference | Schema:
        del handler_id  # every operation describes a body by its type
        found: Reference | Schema = schema_creator.for_field_definition(field_definition)
        return found


def _not_json(reason: Exception) -> ClientException:
    detail = "nested too deeply" if isinstance(reason, RecursionError) else str(reason)[:200]
    return ClientException(f"the body: expected JSON, got something else ({detail}).", status_code=400)


def _read(value: bytes) -> Any:
    try:
        return msgspec.json.decode(value)
    except Exception:  # only for the words of an error
        return None
