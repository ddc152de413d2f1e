"""Golden twins of the templates: `lit -v tests/lit`, with the environment's tools first on PATH."""

import os
import sys
import tempfile
from pathlib import Path

import lit.formats

root = Path(__file__).resolve().parents[2]

config.name = "mlsearch"  # noqa: F821
config.suffixes = [".mlir"]  # noqa: F821
config.test_format = lit.formats.ShTest(execute_external=False)  # noqa: F821
config.test_source_root = str(Path(__file__).parent)  # noqa: F821
# Outside of the tree: %t and the times of the last run are nothing to commit.
config.test_exec_root = str(Path(tempfile.gettempdir()) / f"mlsearch-lit-{os.getuid()}")  # noqa: F821
# The tools of the interpreter that lit runs in, so that the compiler is the one that the package is pinned to.
config.environment["PATH"] = os.pathsep.join(  # noqa: F821
    [str(Path(sys.executable).parent), config.environment.get("PATH", "")]  # noqa: F821
)
# The package of this checkout, wherever another one may be installed.
config.environment["PYTHONPATH"] = str(root)  # noqa: F821
configure = "--pass-pipeline='builtin.module(iree-codegen-materialize-user-configs)'"
config.substitutions = [  # noqa: F821
    ("%templates", str(root / "transforms")),
    ("%bind", f"'{sys.executable}' -m mlsearch.testing.bind"),
    ("%configure_with=", f"iree-opt --mlir-print-local-scope {configure} --iree-codegen-transform-dialect-library="),
]
