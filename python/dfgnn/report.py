"""The command python -m dfgnn.report, of which _report.py says more."""

import sys

from ._report import main, report

if __name__ == "__main__":
    main()
sys.modules[__name__] = report  # type: ignore[assignment]  # an import hides no function
