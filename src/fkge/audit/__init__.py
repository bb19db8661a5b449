"""Privacy audits of a simulation: attacks on each claim, in copies; the simulation's own folder is only read.

Every module in `fkge.audit.attacks` is one attack, a function ``attack(subject)`` as in `fkge.audit.run.AttackModule`.
A new module there is a new attack, known to `fkge.audit.run.audit` and to the command line by its name.
"""

from pathlib import Path
from pkgutil import iter_modules


def attack_names() -> tuple[str, ...]:
    """Return the names of all attacks, in alphabetical order; imports none of them."""
    modules = iter_modules([str(Path(__file__).parent / "attacks")])
    return tuple(sorted(module.name.replace("_", "-") for module in modules))
