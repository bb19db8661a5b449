"""Reports: a run's findings as one page, and its figures as files.

`fkge.report.figures` draws; the report, the files and the live page all show what it draws.
"""

from __future__ import annotations

from fkge.report.page import render_template as render_template
from fkge.report.page import write_report as write_report

__all__ = ["render_template", "write_report"]
