"""The specialisation that Triton's JIT chooses for a key, and when it holds.

Triton compiles other code for an integer that is 1 (it becomes a constexpr), that 16 divides, that
needs 64 bits, and on AMD for a buffer of at most 2^31 - 1 bytes (triton/runtime/jit.py,
native_specialize_impl; HIPBackend). `when` names exactly the keys for which the JIT would choose
this code, so that the variants of a build never overlap. Buffers of an agent are aligned to 16
bytes or more.
"""

from dataclasses import dataclass
from typing import Any

from .._canonical import Fields, Json
from .._errors import PackError
from .expressions import ExpressionError, expression, grouped, substitute
from .keys import Key, format_key
from .signature import BYTES, DTYPES
from .spaces import Config

TYPES = {**{name: short for short, name in DTYPES.items()}, "bool": "u1"}
WHEN_MAX = 4096
_INT32 = (-(2**31), 2**31 - 1)


@dataclass(frozen=True)
class Variant:
    """One specialisation. `attributes`: "D" (16 divides) and "S" (32-bit range) by parameter.

    `signature` and `constexprs` are what build.json states; constexprs that also depend on the
    config are in neither, and come from define_values."""

    when: str
    signature: dict[str, str]
    constexprs: Json
    attributes: dict[str, str]
    keys: list[Key]

    @property
    def speciality(self) -> tuple[int, int, str]:
        """Sorts the most special first."""
        return (-len(self.constexprs), -sum(map(len, self.attributes.values())), self.when)


class _Specialiser:
    """Collects one key's specialisation, argument by argument. `facts`: gpu_name and arch."""

    def __init__(self, key: Key, uses_range: bool, configs: list[Config], facts: Key):
        self.key, self.uses_range, self.configs, self.facts = key, uses_range, configs, facts
        self.signature: dict[str, str] = {}
        self.constexprs: Json = {}
        self.attributes: dict[str, str] = {}
        self.conditions: list[str] = []

    def evaluate(self, text: str, place: str) -> Any:
        try:
            return expression(text).evaluate(self.key)
        except ExpressionError as error:
            raise PackError(f"{place}, for the key {format_key(self.key)}: {error}") from None

    def partials(self, text: str) -> list[str]:
        """The expression with the values of each config and of facts in place of their names: one
        over the key; each once."""
        names = sorted(expression(text).names - set(self.key))
        if not names:
            return [text]
        scopes = ({**self.facts, **config} for config in self.configs)
        points = dict.fromkeys(tuple((name, scope[name]) for name in names if name in scope)
                               for scope in scopes)
        return [substitute(text, dict(point)) for point in points]

    def evaluate_all(self, text: str, place: str) -> list[tuple[str, Any]]:
        return [(one, self.evaluate(one, place)) for one in self.partials(text)]

    def same(self, found: set[bool], name: str, what: str) -> bool:
        """What holds for a key must hold for each config, where it is a part of the signature."""
        if len(found) > 1:
            raise PackError(f"argument {name} {what} for some configs only, with the key "
                            f"{format_key(self.key)}, and Triton has another signature then; "
                            "exclude them by a condition of the space")
        return found.pop()

    def require(self, text: str, condition: str) -> None:
        """`condition` holds for this key; it is kept when it depends on the key."""
        if expression(text).names & set(self.key) and condition not in self.conditions:
            self.conditions.append(condition)

    def buffer(self, parameter: Any, argument: Fields) -> None:
        name, dtype = parameter.name, argument["dtype"]
        own = ("*k" if parameter.is_const else "*") + TYPES[dtype]
        if parameter.annotation_type and parameter.annotation_type != own:
            raise PackError(f"argument {name} is a buffer of {dtype} in the manifest and "
                            f"{parameter.annotation_type} in the function")
        self.signature[name] = own
        if parameter.do_not_specialize:
            return
        attributes = "" if parameter.do_not_specialize_on_alignment else "D"
        if self.uses_range:
            extents = [str(extent) for extent in argument["shape"]]
            text = " * ".join([*map(grouped, extents), str(BYTES[dtype])])
            sizes = self.evaluate_all(text, f"the size of argument {name}")
            fits = self.same({size <= _INT32[1] for _, size in sizes}, name,
                             "has more than 2^31 - 1 bytes")
            for one, _ in sizes:
                self.require(one, f"{one} {'<=' if fits else '>'} {_INT32[1]}")
            attributes += "S" if fits else ""
        if attributes:
            self.attributes[name] = attributes

    def scalar(self, parameter: Any, argument: Fields) -> None:
        name, dtype, text = parameter.name, argument["dtype"], str(argument["value"])
        annotated = parameter.annotation_type or None
        if annotated:
            self.check_annotated(name, annotated, dtype)
        if "float" in dtype:
            if not annotated and dtype != "float32":
                raise PackError(f"argument {name} is a {dtype} scalar; Triton passes a Python "
                                "float as fp32: make it float32, or annotate the parameter")
            self.signature[name] = annotated or "fp32"
        elif dtype == "bool":
            self.signature[name] = annotated or "u1"
        elif annotated is None and dtype not in ("int32", "int64"):
            raise PackError(f"argument {name} is a {dtype} scalar; Triton passes a Python integer "
                            "as i32 or i64: make it int64, or annotate the parameter")
        else:
            self.integer(parameter, dtype, text, annotated)

    def check_annotated(self, name: str, annotated: str, dtype: str) -> None:
        kinds = {**{v: k for k, v in TYPES.items()}, "i1": "bool"}
        known = kinds.get(annotated)
        is_integer = bool(known) and "float" not in known and "float" not in dtype
        if known is None or (known != dtype and not (is_integer and BYTES[dtype] >= BYTES[known])):
            raise PackError(f"argument {name} is {dtype} in the manifest and {annotated} in the "
                            f"function; give it the type {known or 'that Triton knows'}")

    def integer(self, parameter: Any, dtype: str, text: str, annotated: str | None) -> None:
        name = parameter.name
        found = self.evaluate_all(text, f"argument {name}")
        for _, value in found:
            if type(value) is not int:
                raise PackError(f"argument {name} is an integer and its value for the key "
                                f"{format_key(self.key)} is {value!r}")
            if dtype == "int32" and not _INT32[0] <= value <= _INT32[1]:
                raise PackError(f"argument {name} is int32 and its value for the key "
                                f"{format_key(self.key)} is {value}; make it int64")
        fits = self.same({_INT32[0] <= value <= _INT32[1] for _, value in found}, name,
                         "needs 64 bits")
        specialise = not parameter.do_not_specialize
        if specialise and not annotated:
            is_one = self.same({value == 1 for _, value in found}, name, "is 1")
            for one, _ in found:
                self.require(one, f"{grouped(one)} {'==' if is_one else '!='} 1")
            if is_one:
                self.constexprs[name] = 1
                return
        if annotated:
            self.signature[name] = annotated
        else:
            self.signature[name] = "i32" if fits else "i64"
            for one, _ in found if dtype == "int64" else ():
                condition = f"{_INT32[0]} <= {grouped(one)} <= {_INT32[1]}"
                self.require(one, condition if fits else f"not {condition}")
        if specialise and not parameter.do_not_specialize_on_alignment:
            for one, value in found:
                self.require(one, f"{grouped(one)} % 16 {'==' if value % 16 == 0 else '!='} 0")
            if all(value % 16 == 0 for _, value in found):
                self.attributes[name] = "D"

    def define(self, name: str, text: str) -> None:
        """A constexpr of the key: for every config the value that this key gives."""
        reads = expression(text).names
        if not reads & set(self.key):
            return
        for partial, value in self.evaluate_all(text, f"constexpr {name}"):
            self.require(partial, f"{grouped(partial)} == {value!r}")
            if reads <= set(self.key):
                self.constexprs[name] = value

    def when(self) -> str:
        """Conditions that others imply are left out: what 16 divides is not 1."""
        text = " and ".join(
            one for one in self.conditions if not one.endswith(" != 1") or
            f"{one.removesuffix(' != 1')} % 16 == 0" not in self.conditions)
        if len(text.encode()) > WHEN_MAX:
            raise PackError("the condition that says when the code for the key "
                            f"{format_key(self.key)} holds is longer than {WHEN_MAX} bytes; pack "
                            "fewer configs, or make constexprs depend on less")
        return text


def specialise(jit: Any, manifest: Fields, configs: list[Config], key: Key,
               uses_range: bool, is_alone: bool = False, facts: Key | None = None) -> Variant:
    """The variant that one key needs; `uses_range`: buffers of at most 2^31 - 1 bytes are special;
    `is_alone`: functions of the package were evaluated for this key, so that its code is for no
    other."""
    arguments = {argument["name"]: argument for argument in manifest["arguments"]}
    defines = manifest.get("defines", {})
    own = _Specialiser(key, uses_range, configs, facts or {})
    for name, value in key.items() if is_alone else ():
        if isinstance(value, float):
            raise PackError(f"the heuristics or the pruning of {jit.__name__} are evaluated for "
                            f"each key, and its member {name} is a float, which conditions of "
                            "builds cannot compare: state it with --signature as a constexpr")
        own.require(name, f"{name} == {value!r}")
    for parameter in jit.params:
        argument = arguments.get(parameter.name)
        if argument is not None and "shape" in argument:
            own.buffer(parameter, argument)
        elif argument is not None:
            own.scalar(parameter, argument)
        elif not parameter.is_constexpr and str(defines.get(parameter.name)) == "None":
            own.constexprs[parameter.name] = None
        elif parameter.name in defines:
            own.define(parameter.name, str(defines[parameter.name]))
        elif not parameter.is_constexpr:
            own.constexprs[parameter.name] = parameter.default
    return Variant(own.when(), own.signature, own.constexprs, own.attributes, [key])


def variants_of(jit: Any, manifest: Fields, configs: list[Config], keys: list[Key],
                uses_range: bool, is_alone: bool = False,
                facts: Key | None = None) -> list[Variant]:
    """The variants of all keys, the most special first; keys with one specialisation share one."""
    found: dict[str, Variant] = {}
    for key in keys:
        variant = specialise(jit, manifest, configs, key, uses_range, is_alone, facts)
        own = found.setdefault(variant.when, variant).keys
        if key not in own:
            own.append(key)
    return sorted(found.values(), key=lambda variant: variant.speciality)


def define_values(manifest: Fields, scope: Key) -> Json:
    """The constexprs of the manifest's defines; `scope`: key, config, gpu_name and arch."""
    return {name: expression(text).evaluate(scope)
            for name, text in manifest.get("defines", {}).items()}
