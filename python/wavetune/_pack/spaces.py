"""Configuration spaces (common/space/space.h): read strictly, enumerated in the order of their
ordinals. A point that any condition excludes is left out; when none does and one cannot be
evaluated, that is an error.
"""

import itertools
from dataclasses import dataclass
from typing import Any, Iterator, Mapping

from .._canonical import Fields, Json, canonical
from .._errors import PackError
from .expressions import Expression, ExpressionError, Value, expression

ROLES = {"constexpr": "constexpr", "define": "constexpr", "option": "option", "env": "env"}
POINTS_MAX = 10_000_000  # of the raw product that Python walks through
LIST_MAX = 100_000

Config = dict[str, Value]


@dataclass(frozen=True)
class Space:
    parameters: dict[str, list[Value]]  # of a list: names only
    roles: dict[str, str]  # of every parameter
    conditions: list[Expression]
    configs: list[Config] | None
    json: Json

    def points(self, scopes: list[Mapping[str, Value]]) -> Iterator[Config]:
        """The configs whose conditions are true in any of the scopes (a key's members and gpu_name,
        arch)."""
        for point in self._all():
            if any(self._holds(point, scope) for scope in scopes):
                yield point

    def baselines(self, scopes: list[Mapping[str, Value]]) -> list[Config]:
        """The configs with which others are compared: the default, else the first of each scope."""
        if "default" in self.json:
            return [self.json["default"]]
        return [first for scope in scopes for first in itertools.islice(self.points([scope]), 1)]

    def _all(self) -> Iterator[Config]:
        if self.configs is not None:
            yield from self.configs
            return
        names = list(self.parameters)
        for values in itertools.product(*self.parameters.values()):
            yield dict(zip(names, values))

    def _holds(self, point: Config, scope: Mapping[str, Value]) -> bool:
        names = {**scope, **point}
        failed: ExpressionError | None = None
        for condition in self.conditions:
            try:
                if not condition.evaluate(names):
                    return False
            except ExpressionError as error:
                failed = failed or error
        if failed:
            raise PackError(f"a condition of the space fails for {canonical(point)}: {failed}")
        return True


def _check_value(value: Any, place: str) -> Value:
    if value is not None and not isinstance(value, (bool, int, str)):
        raise PackError(f"{place}: a value of a parameter must be an integer, a string, true, "
                        "false or null")
    return value


def _read_list(json: Fields, place: str) -> list[Config]:
    configs = json["configs"]
    if not isinstance(configs, list) or not 1 <= len(configs) <= LIST_MAX:
        raise PackError(f'{place}: "configs" must be an array of 1 to {LIST_MAX} configs')
    for i, config in enumerate(configs):
        if not isinstance(config, dict) or set(config) != set(configs[0]):
            raise PackError(f"{place}: config {i} must have the names of the first one, and no "
                            "other")
        for name, value in config.items():
            _check_value(value, f"{place}: config {i}, {name}")
    return configs


def _read_parameters(json: Fields, place: str) -> dict[str, list[Value]]:
    parameters = json.get("parameters")
    if not isinstance(parameters, dict):
        raise PackError(f'{place}: a space has "parameters" or "configs"')
    size = 1
    for name, values in parameters.items():
        if not isinstance(values, list) or not values:
            raise PackError(f"{place}: parameter {name} must have an array of values")
        for value in values:
            _check_value(value, f"{place}: parameter {name}")
        if len({(type(value), value) for value in values}) != len(values):
            raise PackError(f"{place}: parameter {name} has a value twice")
        size *= len(values)
    if size > POINTS_MAX:
        raise PackError(f"{place}: the space has {size} points before conditions, pack walks "
                        f'through {POINTS_MAX}: list the configs to pack under "configs"')
    return parameters


def parse_space(json: Any, place: str) -> Space:
    """`place` names the file in errors."""
    if not isinstance(json, dict):
        raise PackError(f"{place}: a space must be an object")
    unknown = set(json) - {"parameters", "configs", "roles", "conditions", "default"}
    if unknown:
        raise PackError(f"{place}: a space has no member {min(unknown)}")
    configs = _read_list(json, place) if "configs" in json else None
    parameters = _read_parameters(json, place) if configs is None else dict.fromkeys(configs[0], [])
    roles = dict.fromkeys(parameters, "constexpr")
    for name, role in json.get("roles", {}).items():
        if name not in parameters:
            raise PackError(f"{place}: there is no parameter {name} that could have a role")
        if role not in ROLES:
            raise PackError(f"{place}: the role of {name} must be constexpr, option or env")
        roles[name] = ROLES[role]
    conditions = [expression(text) for text in json.get("conditions", [])]
    return Space(parameters, roles, conditions, configs, json)
