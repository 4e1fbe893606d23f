"""Pure. What is wrong with a file, collected so that a person sees all of it at once."""

from dataclasses import dataclass, field

__all__ = ["FileRefused", "Problem", "Problems"]

# More is no help to anybody, and a file of garbage must not flood a terminal.
MOST_PROBLEMS = 200


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One thing that is wrong, and where. Lines and columns count from 1; 0 is the file as a whole."""

    line: int
    column: int
    path: str
    message: str


class FileRefused(Exception):
    """The file cannot be applied, and nothing was changed."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(slots=True)
class Problems:
    """The problems of one file, known by the name that the person gave."""

    file: str
    found: list[Problem] = field(default_factory=list)

    def add(self, line: int, column: int, path: str, message: str) -> None:
        self.found.append(Problem(line, column, path, message))

    def shown(self) -> list[str]:
        """One line for each, in the order of the file: `file.yaml:12: organizations[0].name: must be ...`."""
        lines = []
        for problem in sorted(set(self.found))[:MOST_PROBLEMS]:
            where = f"{self.file}:{problem.line}" if problem.line else self.file
            path = f"{problem.path}: " if problem.path else ""
            column = f" (column {problem.column})" if problem.column else ""
            lines.append(f"{where}: {path}{problem.message}{column}")
        if len(self.found) > MOST_PROBLEMS:
            lines.append(f"{self.file}: and {len(self.found) - MOST_PROBLEMS} more")
        return lines

    def refuse_if_any(self) -> None:
        """Raise FileRefused with all that was found."""
        if self.found:
            raise FileRefused(self.shown())
