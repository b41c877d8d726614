"""What each name of a config is for Triton: a constexpr of the function, an option of the backend,
the environment. As for Triton's JIT, one may be both of the first two (`num_stages` in the
tutorial's softmax).
"""

from typing import Any, Mapping

from .._canonical import Fields, Json
from .._errors import PackError
from .spaces import Space

# Options of either backend over the versions: a space may carry those of the other one, which do
# nothing there.
FOREIGN = {
    "waves_per_eu", "matrix_instr_nonkdim", "kpack", "schedule_hint", "instruction_sched_variant",
    "maxnreg", "num_ctas", "launch_pdl", "num_buffers_warp_spec", "num_consumer_groups",
    "reg_dec_producer", "reg_inc_consumer", "ir_override"
}
# Variables that steer a compile. None of the caller's enters a build; a space states them with the
# role env.
COMPILE_VARIABLES = ("TRITON_", "AMDGCN_", "MLIR_", "LLVM_", "NVPTX_", "DISABLE_",
                     "OPTIMIZE_EPILOGUE", "USE_IR_LOC", "ALLOW_LHS_TMEM_LAYOUT_CONVERSION")
KEPT = ("TRITON_HOME", "TRITON_HIP_LLD_PATH", "TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH")


def option_names(backend: Any) -> set[str]:
    return set(vars(backend.parse_options({}))) - {"arch", "warp_size", "backend_name",
                                                   "extern_libs", "debug"}


def is_compile_variable(name: str) -> bool:
    return name.startswith(COMPILE_VARIABLES) and name not in KEPT


def split_config(config: Fields, space_roles: Mapping[str, str], parameters: set[str],
                 options: set[str]) -> tuple[Json, Json, dict[str, str]]:
    """(constexprs, options, environment) of one config."""
    own = {n: v for n, v in config.items() if space_roles[n] != "env"}
    constexprs = {n: v for n, v in own.items() if n in parameters}
    chosen = {n: v for n, v in own.items() if n in options and v is not None}
    environment = {n: str(int(v)) if isinstance(v, bool) else str(v) for n, v in config.items()
                   if n not in own and v is not None}
    return constexprs, chosen, environment


def check_roles(space: Space, constexprs: set[str], options: set[str], function: str) -> None:
    """Every parameter of the space must reach the compile by the role that it has."""
    for name, role in space.roles.items():
        if role == "env":
            if name in constexprs or not is_compile_variable(name) or \
                    not name.replace("_", "").isalnum():
                raise PackError(f"parameter {name} has the role env; variables of a Triton compile "
                                f"begin with {', '.join(COMPILE_VARIABLES[:3])} and the like")
        elif role == "option" and name not in options and name not in FOREIGN:
            raise PackError(f"parameter {name} has the role option, and this Triton has none of "
                            f"that name; it has {', '.join(sorted(options))}")
        elif role == "constexpr" and name not in constexprs:
            hint = '; give it the role "option" in "roles"' if name in options | FOREIGN else ""
            raise PackError(f"parameter {name} of the space is no constexpr of {function}{hint}")
