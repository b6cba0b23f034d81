"""Models of settings.

One line per key has type, default, bounds, unit, description and synonyms.

    >>> class Ray(Config):
    ...     "Where workers run."
    ...     gpus: Annotated[float, number(low=0)] = setting(0.0, "devices of one worker",
    ...                                                     synonyms=("num_gpus",))
    >>> Ray(gpus="0.5").gpus
    0.5
    >>> schema_of(Ray).fields["gpus"].default
    '0.0'
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from types import NoneType
from typing import Annotated, Any, ClassVar, Self, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, PydanticUndefined, core_schema

from scalesearch.config import MAX_BEAM
from scalesearch.errors import UserError
from scalesearch.files import is_valid_file_name
from scalesearch.spaces.schema.types import SchemaField, SchemaGroup
from scalesearch.spaces.syntax.diagnostics import warn_deprecated
from scalesearch.spaces.syntax.domains import ConstantDomain
from scalesearch.spaces.syntax.lexer import ValueSyntaxError
from scalesearch.spaces.syntax.nodes import ScalarNode
from scalesearch.spaces.syntax.parameters import format_constant
from scalesearch.spaces.syntax.parser import parse_value

NONE_TEXT = "none"
NONE_TEXTS = (NONE_TEXT, "null", "~", "")
OPEN_ARGUMENTS = "*"  # the arguments of the value of ``Config.open_key``
NAME_DESCRIPTION = "a name (a text without slashes, of at most 200 bytes)"
REQUIRED: Any = ...


class FileText(str):
    """A scalar of a file, with its node."""

    node: ScalarNode

    @classmethod
    def of(cls, node: ScalarNode) -> "FileText":
        """The text of ``node``."""
        text = cls(node.text)
        text.node = node
        return text

    @property
    def is_none(self) -> bool:
        """Whether it is an unquoted ``none``."""
        return not self.node.is_quoted and self in NONE_TEXTS


@dataclass(frozen=True)
class SettingProblem:
    """A problem of the value of ``key``, of the key itself, or of the model (empty)."""

    key: str
    message: str
    help: str | None = None
    code: str = "bad-value"
    at_key: bool = False


class SettingError(ValueError):
    """Problems that a validator found; each is reported at the position of its key."""

    def __init__(self, *problems: SettingProblem) -> None:
        super().__init__("; ".join(problem.message for problem in problems))
        self.problems = problems


class Constant(SchemaField):
    """A constant of the space language with units (``10k``), as the type of a setting."""

    def __get_pydantic_core_schema__(self, source: object,
                                     handler: GetCoreSchemaHandler) -> CoreSchema:
        bounds: Any = {"gt" if self.excludes_low else "ge": self.low, "le": self.high}
        bounds = {name: bound for name, bound in bounds.items() if bound is not None}
        schema: CoreSchema
        match self.type:
            case "size":
                schema = core_schema.int_schema(strict=True, **bounds)
            case "number":
                schema = core_schema.float_schema(strict=True, allow_inf_nan=False, **bounds)
            case "flag":
                schema = core_schema.bool_schema(strict=True)
            case "word":
                schema = core_schema.literal_schema(list(self.words))
            case _:
                schema = core_schema.str_schema(min_length=1)
        # the schema of numbers warns of words such as `auto`
        as_it_is = core_schema.plain_serializer_function_ser_schema(lambda value: value)
        return core_schema.with_info_wrap_validator_function(
            self._validate, schema, serialization=as_it_is if self.special_values else None)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: Any) -> Any:
        json = handler(schema)
        match self.type:
            case "size" | "number":  # also with a unit, or as a domain that a study searches
                return {"anyOf": [json, {"type": "string"}]}
            case "flag":
                return {"anyOf": [json, {"enum": ["yes", "no"]}]}
            case "word":
                return {"anyOf": [json, {"type": "string", "pattern": "[|=]| if |^none$"}]}
        return json

    def _validate(self, value: object, handler: Any, info: ValidationInfo) -> Any:
        converted = self.convert(value, info)
        return str(converted) if isinstance(converted, str) and (
            converted in self.special_values) else handler(converted)

    def convert(self, value: object, info: ValidationInfo) -> Any:
        """Return the constant in a text; other values are unchanged."""
        if self.type == "text":
            is_text = isinstance(value, str | list | dict | NoneType)
            return value if is_text else format_constant(value)
        constant = parse_constant(value)
        if self.type == "size" and isinstance(constant, float) and constant.is_integer():
            return int(constant)
        if self.type == "word" and not isinstance(constant, list | tuple | dict | NoneType):
            word = format_constant(constant)
            if word not in self.deprecated_words:
                return word
            present = self.deprecated_words[word]
            if isinstance(value, FileText):
                warn_deprecated(value.node.position,
                                f"{info.field_name}: `{word}` is now `{present}`")
            return present
        return value if isinstance(constant, str) else constant


def size(low: int = 1, high: int | None = None, special_values: tuple[str, ...] = ()) -> Constant:
    """A whole number."""
    return Constant("size", low=low, high=high, special_values=special_values)


def number(low: float | None = None, high: float | None = None,
           special_values: tuple[str, ...] = (), above: float | None = None) -> Constant:
    """A finite number; ``above`` is a lower bound that is not legal itself."""
    return Constant("number", low=low if above is None else above, high=high,
                    excludes_low=above is not None, special_values=special_values)


def words(*words: str, deprecated: Mapping[str, str] | None = None,
          foreign: Mapping[str, str] | None = None) -> Constant:
    """One of ``words``; ``deprecated`` maps earlier words to present ones.

    ``foreign`` maps words of other tools to a help line.
    """
    return Constant("word", words, deprecated_words=deprecated or {}, foreign_words=foreign or {})


Size = Annotated[int, size()]
Count = Annotated[int, size(low=0)]
BeamSize = Annotated[int, size(1, MAX_BEAM)]
NonNegative = Annotated[float, number(low=0)]
Positive = Annotated[float, number(above=0)]
Flag = Annotated[bool, Constant("flag")]
Text = Annotated[str, Constant("text")]


def parse_constant(value: object) -> Any:
    """Return the number, flag or word in a text; everything else is unchanged."""
    if not isinstance(value, str):
        return value
    try:
        domain = parse_value(value.removeprefix("+"))
    except ValueSyntaxError:
        return value
    return domain.value if isinstance(domain, ConstantDomain) else value


def plain_value(value: object) -> Any:
    """Return a value without a type: a number, yes or no, a text, or a list of these."""
    if isinstance(value, list | tuple):
        return [plain_value(item) for item in value]
    if isinstance(value, FileText):
        return None if value.is_none else str(value) if value.node.is_quoted else (
            parse_constant(str(value)))
    return value


def _check_name(value: object) -> Any:
    text = value if isinstance(value, str) else ""
    if not is_valid_file_name(text):
        actual = f", found `{text}`" if text else ""
        raise SettingError(SettingProblem("", f"expected {NAME_DESCRIPTION}{actual}"))
    return text


Name = Annotated[str, BeforeValidator(_check_name)]  # becomes part of a file or folder name


def setting(default: object, doc: str, *, name: str = "", unit: str = "",
            synonyms: Sequence[str] = (), deprecated: Sequence[str] = (), expected: str = "",
            default_text: str = "", exclude: bool = False) -> Any:
    """A key of a model.

    Args:
        default: the value if a file does not set it; ``REQUIRED`` if it must.
        name: the name in files, if it is not a legal name in Python.
        synonyms: names in other tools. The error for such a key suggests this one.
        deprecated: earlier names, which are accepted with a warning.
        expected: the legal values in words, if the type is not a constant.
        default_text: the default in words, if it depends on other keys.
        exclude: not part of the JSON of a model.
    """
    facts = {"unit": unit, "synonyms": list(synonyms), "deprecated_names": list(deprecated),
             "expected": expected, "default_text": default_text}
    extra: Any = {fact: value for fact, value in facts.items() if value}
    return Field(default, validation_alias=name or None, description=doc, json_schema_extra=extra,
                 exclude=exclude)


class Config(BaseModel):
    """Base of models of settings. Errors of the constructor are ``ConfigError``.

    Attributes:
        section: the name of the model in errors of Python objects.
        shorthand_key: the key that a value that is not a mapping sets.
        open_key: if this key is set, other keys of any name are its arguments.
        unsupported: keys that do not exist, with the alternative.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True,
                              protected_namespaces=())
    section: ClassVar[str] = ""
    shorthand_key: ClassVar[str | None] = None
    open_key: ClassVar[str | None] = None
    unsupported: ClassVar[Mapping[str, str]] = {}

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            from scalesearch.config.reader import python_error

            raise python_error(type(self), values, error) from None

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]  # nested: no constructor

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: Any) -> Any:
        """Allow dotted keys, and the short form."""
        reference = handler(schema)
        mapping = handler.resolve_ref_schema(reference)
        mapping["patternProperties"] = {r"^[^.]+\.": {}}
        mapping["description"] = (cls.__doc__ or "").split("\n")[0]
        if cls.open_key is not None:
            mapping["additionalProperties"] = True
        if cls.shorthand_key is not None:
            short = mapping["properties"][cls.shorthand_key]
            inner = dict(mapping)
            mapping.clear()
            mapping["anyOf"] = [inner, {"anyOf": [short, {"type": "string"}]}]
        return reference

    @model_validator(mode="before")
    @classmethod
    def _expand_shorthand(cls, values: object) -> Any:
        if cls.shorthand_key is None or isinstance(values, dict | Config):
            return values
        return {cls.shorthand_key: values}

    @model_validator(mode="after")
    def _check(self) -> Self:
        problems = [SettingProblem(*problem) for problem in self.find_problems()]
        if problems:
            raise SettingError(*problems)
        return self

    def find_problems(self) -> Iterable[tuple[str, str, str | None]]:
        """Yield key, problem and help of values that are only valid separately."""
        return ()

    def make(self) -> Any:
        """The value of a key of the type ``MadeFrom`` this model: the given keys."""
        return {name: getattr(self, name) for name in self.model_fields_set}

    @classmethod
    def from_mapping(cls, mapping: object) -> Self:
        """Read the value of a section of a file, a mapping or its short form.

        Raises:
            ConfigError: all unknown keys and invalid values.
        """
        from scalesearch.config.reader import read_config, to_node

        return read_config(cls, to_node(cls.section, mapping))

    def replace(self, **changes: Any) -> Self:
        """Return a validated copy with other values of some keys."""
        values = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self)(**(values | changes))


@dataclass(frozen=True)
class NodeValue:
    """A value that pydantic leaves as a node of the file.

    The reader of studies resolves it.
    """

    json_schema: Any = field(default_factory=dict)

    def __get_pydantic_core_schema__(self, source: object,
                                     handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.any_schema()

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: object) -> Any:
        return dict(self.json_schema)


@dataclass(frozen=True)
class MadeFrom:
    """A value that ``model.make`` creates; with ``is_optional``, ``none`` is None."""

    model: type[Config]
    is_optional: bool = False

    def __get_pydantic_core_schema__(self, source: object,
                                     handler: GetCoreSchemaHandler) -> CoreSchema:
        def make(config: Config) -> Any:
            try:
                return config.make()
            except UserError as error:
                raise SettingError(
                    SettingProblem("", error.message, error.help, error.code)) from None

        schema: CoreSchema = core_schema.no_info_after_validator_function(
            make, handler.generate_schema(self.model))
        return core_schema.nullable_schema(schema) if self.is_optional else schema


@cache
def schema_of(model: type[Config]) -> SchemaGroup:
    """The keys of ``model`` as a schema of the space language.

    It serves help, pages and parameters.
    """
    fields = {name: _child(info) for name, info in keys_of(model).items()}
    doc = (model.__doc__ or "").split("\n")[0]
    return SchemaGroup(fields, doc=doc, shorthand_key=model.shorthand_key,
                       open_key=model.open_key, unsupported=model.unsupported)


def keys_of(model: type[Config]) -> dict[str, FieldInfo]:
    """The fields of ``model`` by their names in files."""
    names = {str(info.validation_alias or name): info for name, info in model.model_fields.items()}
    return {name: info for name, info in names.items() if name != OPEN_ARGUMENTS}


def _child(info: FieldInfo) -> SchemaField | SchemaGroup:
    facts: Any = info.json_schema_extra or {}
    shared: dict[str, Any] = {"doc": info.description or "",
                              "synonyms": tuple(facts.get("synonyms", ())),
                              "deprecated": tuple(facts.get("deprecated_names", ()))}
    is_optional, model, metadata = inspect_field(info)
    if model is not None and not is_list(info):
        return replace(schema_of(model), optional=is_optional, required=info.is_required(),
                       **shared)
    default = info.get_default(call_default_factory=True)
    if info.is_required():
        default_text = None
    elif default is PydanticUndefined or default is None or default in ((), {}):
        default_text = NONE_TEXT
    else:
        default_text = format_constant(default)
    shared |= {"unit": facts.get("unit", ""), "default": facts.get("default_text", default_text)}
    constant = next((item for item in metadata if isinstance(item, Constant)), None)
    if constant is None:
        return SchemaField("node", expected=facts.get("expected", ""),
                           items=schema_of(model) if model else None, **shared)
    special_values = constant.special_values + (NONE_TEXT,) * is_optional
    return replace(constant, special_values=special_values, **shared)


def inspect_field(info: FieldInfo) -> tuple[bool, type[Config] | None, Iterable[Any]]:
    """Whether a field may be None, the model of its value or items, and its metadata."""
    metadata = list(info.metadata)
    types: list[Any] = []
    pending = [info.annotation]
    while pending:
        annotation = pending.pop()
        arguments = get_args(annotation)
        if get_origin(annotation) is Annotated:
            metadata += arguments[1:]
            pending.append(arguments[0])
        elif arguments:
            pending += arguments
        else:
            types.append(annotation)
    source = next((item for item in metadata if isinstance(item, MadeFrom)), None)
    if source is not None:
        return source.is_optional, source.model, metadata
    models = [cls for cls in types if isinstance(cls, type) and issubclass(cls, Config)]
    return NoneType in types, models[0] if models else None, metadata


def is_list(info: FieldInfo) -> bool:
    """Whether a field holds a list."""
    return get_origin(info.annotation) is tuple
