"""Measure private set intersection: seconds, bytes and memory of each phase.

``python -m benchmarks.psi`` prints its table; ``--sizes 5000x10000`` measures other sizes (client × host), and
``--minimum`` adds the round that counts before anything is revealed. Each size runs in a process of its own. Both roles
run in it, one after the other, on one thread: a client and a host on two machines wait for each other just as long.
"""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks.child import Clock, call, peak_mb

SIZES = "2000x2000,5000x10000,120000x500000"
PHASES = ("client asks", "host answers", "client claims", "host agrees", "client checks")
COUNTING = ("client counts", "host counts")


def measure(client_items: int, host_items: int, minimum: int) -> dict[str, Any]:
    """One run over URIs of which a fifth of the client's are common."""
    import private_set_intersection.python  # noqa: F401  (reported as missing if it is; not part of a phase)

    from fkge.align import PsiClient, PsiHost, PsiSettings

    common = client_items // 5
    shared = [f"http://example.org/common/{i}" for i in range(common)]
    here = shared + [f"http://example.org/here/{i}" for i in range(client_items - common)]
    there = shared + [f"http://example.org/there/{i}" for i in range(host_items - common)]
    settings = PsiSettings.build({"min_overlap": minimum})
    before = peak_mb()
    client, host = PsiClient(here, settings), PsiHost(there, settings)
    phases = []
    message: bytes | None = b""
    for name in (*(COUNTING if minimum else ()), *PHASES):
        assert message is not None
        clock = Clock()
        if not phases:
            message = client.start()
        else:
            message = (client if name.startswith("client") else host).step(message)
        phases.append({"phase": name, "wall_s": clock.wall, "cpu_s": clock.cpu, "bytes": len(message or b"")})
    assert message is None
    assert client.found == host.found == sorted(shared)
    return {"phases": phases, "mb_before": before, "peak_mb": peak_mb()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.psi", description=__doc__)
    parser.add_argument("--sizes", default=SIZES, help=f"items of the client x items of the host, {SIZES}")
    parser.add_argument("--minimum", action="store_true", help="count first")
    options = parser.parse_args()
    print(f"{'client':>9} {'host':>9}  {'phase':<14} {'wall s':>8} {'CPU s':>8} {'sent MB':>8} {'peak MB':>8}")
    for size in options.sizes.split(","):
        here, there = map(int, size.split("x"))
        result = call("psi:measure", client_items=here, host_items=there, minimum=int(options.minimum))
        if "phases" not in result:
            print(f"{here:>9,} {there:>9,}  {result}")
            continue
        rows = result["phases"]
        total = {key: sum(row[key] for row in rows) for key in ("wall_s", "cpu_s", "bytes")}
        for row in [*rows, {"phase": "together", **total}]:
            peak = f"{result['peak_mb']:8.0f}" if row["phase"] == "together" else ""
            print(
                f"{here:>9,} {there:>9,}  {row['phase']:<14} {row['wall_s']:8.2f} {row['cpu_s']:8.2f} "
                f"{row['bytes'] / 1e6:8.2f} {peak}".rstrip()
            )
        exponents = (3 * here + there) * (2 if options.minimum else 1)
        print(
            f"{'':19}  {total['cpu_s'] / exponents * 1e6:.0f} µs CPU per exponent; {result['mb_before']:.0f} MB before"
        )


if __name__ == "__main__":
    main()
