"""The one exception of the package: a refusal that a person reads as one sentence."""

from __future__ import annotations


class PackError(Exception):
    """What was wrong, where, and what to do. `status`: the exit code (docs/exit-codes.md)."""

    def __init__(self, sentence: str, status: int = 2):
        super().__init__(sentence)
        self.status = status


def _telling(error: BaseException) -> str:
    """Of Triton's CompilationError the place and the reason, without the text between them."""
    lines = str(error).splitlines()
    marker = next((i for i, line in enumerate(lines) if line.strip() == "^"), None)
    if marker is None:
        return str(error)
    reason = " ".join(lines[marker + 1:]).strip() or str(error.__cause__ or "")
    return f"{lines[0]} {lines[marker - 1].strip()}: {reason}"


def last_line(text: str, otherwise: str = "nothing") -> str:
    """What a process said last."""
    return one_line((text.strip().splitlines() or [otherwise])[-1])


def one_line(error: BaseException | str, limit: int = 300) -> str:
    """The text of an exception on one line: what a build says of a config that does not compile."""
    text = error if isinstance(error, str) else f"{type(error).__name__}: {_telling(error)}"
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= limit else text[:limit - 1] + "…"
