"""The command ``ddlplan init``."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

from planner.errors import UsageError
from planner.report.output import Output
from planner.report.table import WithCommand
from planner.use_case_drafts.drafting import draft_use_case
from planner.use_case_drafts.writing import file_of, todos_of


def write_draft(script: Path, output: Path | None, out: Output) -> None:
    """Write a use case from a script, and say what was found and what is left to do.

    Raises:
        UsageError: The script is no training that a use case can have, or the file is there.
    """
    try:
        draft = draft_use_case(script)
        text = file_of(draft)
    except (RecursionError, ValueError) as error:  # ValueError: a number of too many digits
        raise UsageError(
            f"{script}: its code cannot be taken over ({error}): write the use case by hand, see "
            "docs/own-model.md"
        ) from error
    file = output or script.with_name(f"{script.stem}_case.py")
    try:
        # Never one that came meanwhile. A name that is not UTF-8 may stand in a comment.
        with file.open("x", encoding="utf-8", errors="backslashreplace") as stream:
            try:
                stream.write(text)
                stream.flush()
            except OSError:
                file.unlink(missing_ok=True)
                raise
    except FileExistsError as error:
        raise UsageError(f"{file}: it is there already: name another file by --output") from error
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}: name another file by --output") from error
    name = f"{file}:{draft.class_name}"
    out.write_line(f"{file}: use case {draft.class_name}, from {script}")
    for method in draft.methods:
        where = "not found" if method.line is None else f"line {method.line}"
        out.write_line(f"  {method.name:<10} {where}")
    todos = todos_of(text)
    for todo in todos:
        out.write_line(f"{file}:{todo.line}: TODO: {todo.text}")
    out.write_line(WithCommand("then: ", f"ddlplan use-cases check {quote(name)}"))
    out.finish(
        {
            "file": str(file),
            "use_case": name,
            "found": {method.name: method.line for method in draft.methods},
            "todo": [{"line": todo.line, "text": todo.text} for todo in todos],
        }
    )
