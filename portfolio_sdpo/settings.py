"""Frozen, typed, validated settings: wrong ones fail at construction with a sentence that names the field."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self, get_args

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import PydanticSerializationError

from portfolio_sdpo.errors import SettingsError, did_you_mean


@dataclass(frozen=True)
class Choices:
    """Marks a field whose settings are told apart by their kind: which classes there are, for hints about spelling."""

    classes: Callable[[], Iterable[type[BaseModel]]]


class Settings(BaseModel):
    """Base of every settings object: immutable, no unknown fields, no NaN, errors as `SettingsError`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, ser_json_inf_nan="constants")

    added_later: ClassVar[frozenset[str]] = frozenset()
    """Fields that did not exist when first fingerprints were made; at their default these do not count there."""

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise SettingsError(_one_sentence(type(self), error)) from None

    # Settings inside settings are then validated without this __init__, and a complaint keeps its path: Run.cvar.alpha.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        """As pydantic's, with errors as `SettingsError`."""
        try:
            return super().model_validate(obj, **options)
        except ValidationError as error:
            raise SettingsError(_one_sentence(cls, error)) from None

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **options: Any) -> Self:
        """As pydantic's, with errors as `SettingsError`."""
        try:
            return super().model_validate_json(json_data, **options)
        except ValidationError as error:
            raise SettingsError(_one_sentence(cls, error)) from None

    def find_unused_additions(self) -> dict[str, Any]:
        """Fields that were added later and are at their default, as pydantic's `exclude` takes them.

        Fingerprints leave them out, so that what was begun before a field existed is still recognised.

        >>> class Old(Settings):
        ...     size: int = 1
        ...     added_later = frozenset({"size"})
        >>> class Outer(Settings):
        ...     inner: Old = Old()
        >>> Outer().find_unused_additions(), Outer(inner=Old(size=2)).find_unused_additions()
        ({'inner': {'size': True}}, {})
        """
        found: dict[str, Any] = {}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if name in self.added_later and value == field.default:
                found[name] = True
            elif isinstance(value, Settings) and (inside := value.find_unused_additions()):
                found[name] = inside
        return found

    def model_dump(self, **options: Any) -> dict[str, Any]:
        """As pydantic's; `mode="json"` raises a `SettingsError` when a function has no import path."""
        try:
            return super().model_dump(**options)
        except PydanticSerializationError as error:
            raise _unwritable(type(self).__name__, error) from None

    def model_dump_json(self, **options: Any) -> str:
        """As pydantic's; raises a `SettingsError` when a function has no import path."""
        try:
            return super().model_dump_json(**options)
        except PydanticSerializationError as error:
            raise _unwritable(type(self).__name__, error) from None


def _one_sentence(owner: type[BaseModel], error: ValidationError) -> str:
    """The first complaint of a pydantic error as one sentence: `CVaR.alpha: ... (got 1.5).`"""
    first = error.errors(include_url=False)[0]
    # The name of a member of a union that says nothing to the user begins with an underscore, as no field does.
    field = ".".join([owner.__name__, *(part for part in map(str, first["loc"]) if not part.startswith("_"))])
    inner = first.get("ctx", {}).get("error")
    if isinstance(inner, SettingsError):
        return f"{field}: {inner}"
    if first["type"] == "extra_forbidden":
        hint = did_you_mean(str(first["loc"][-1]), _names(owner, set()))
        return f"{field}: there is no such field{hint} (got {first['input']!r})."
    message = first["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    message = message[0].lower() + message[1:]
    got = "" if first["type"] == "missing" or not first["loc"] else f" (got {first['input']!r})"
    return f"{field}: {message.rstrip('.')}{got}."


def _names(part: Any, seen: set[Any]) -> Iterator[str]:
    """Yield the names of all fields, including those of nested settings."""
    if isinstance(part, type) and issubclass(part, BaseModel) and part not in seen:
        seen.add(part)
        for name, field in part.model_fields.items():
            yield name
            for inner in (field.annotation, *field.metadata):
                yield from _names(inner, seen)
    for inner in part.classes() if isinstance(part, Choices) else get_args(part):
        yield from _names(inner, seen)


def _unwritable(owner: str, error: PydanticSerializationError) -> SettingsError:
    """Unwrap the sentence about the field that cannot be written from pydantic's error."""
    sentence = str(error).rpartition(f"{SettingsError.__name__}: ")[2]
    return SettingsError(f"{owner}: {sentence}")


def check_seeds(seeds: tuple[int, ...]) -> tuple[int, ...]:
    """Return the seeds if they are valid; a validator of settings."""
    if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise ValueError("must be at least one number, all different, none negative")
    return seeds
