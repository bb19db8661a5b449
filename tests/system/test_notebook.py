"""The tutorial's notebook runs from top to bottom, and what it shows makes sense."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).resolve().parents[2] / "docs" / "tutorial.ipynb"

# Asked of the notebook's own variables once its last cell has run.
ASKED = """
import json

print(json.dumps({
    "nations": model.evaluate(["test"])["test"]["mrr"],
    "owners": result.owners,
    "arms": result.arms,
    "held": gains[(gains["part"] == "held") & (gains["metric"] == "mrr")].set_index("owner")["low"].to_dict(),
    "rows": len(table),
    "bars": len(ax.patches),
    "files": sorted(p.name for p in here.iterdir()),
}))
"""


@pytest.fixture(scope="module")
def notebook() -> Any:
    return pytest.importorskip("nbformat").read(NOTEBOOK, as_version=4)


def test_it_is_kept_without_outputs(notebook: Any) -> None:
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # of the libraries that talk to the kernel
def test_it_runs(notebook: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ipykernel")
    pytest.importorskip("matplotlib")
    client = pytest.importorskip("nbclient").NotebookClient
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    last = pytest.importorskip("nbformat").v4.new_code_cell(ASKED)
    shown = [cell for cell in notebook.cells if cell.cell_type == "code"]
    notebook.cells.append(last)
    client(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    found = json.loads(last.outputs[0]["text"])
    assert found["nations"] > 0.55
    assert (found["owners"], found["arms"]) == (["boston", "geneva", "osaka"], ["control", "federated"])
    assert set(found["held"]) == set(found["owners"])
    assert all(low > 0.05 for low in found["held"].values())  # each gains on what a partner knows, beyond doubt
    assert found["rows"] == 3 * 2 * 2 * 6
    assert found["bars"] == 3
    assert found["files"] == ["boston.npz", "boston.tsv", "geneva.tsv", "osaka.tsv"]
    streams = [out for cell in shown for out in cell.outputs if out.get("name") == "stderr"]
    assert not streams, streams
    pictures = [out for cell in shown for out in cell.outputs if "image/png" in out.get("data", {})]
    assert len(pictures) == 1
    lines = [out["data"]["text/plain"] for cell in shown for out in cell.outputs if "text/plain" in out.get("data", {})]
    assert any(line.startswith("control  ████") and "100%" in line for line in lines)
