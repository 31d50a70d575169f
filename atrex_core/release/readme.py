"""README.md of a release: what the files are, how to run them, how to hand a candidate in."""

from __future__ import annotations

from collections.abc import Sequence

README = "README.md"


def readme(ids: Sequence[str]) -> str:
    """Return the text for a release of the problems called `ids`."""
    return _TEXT.format(example=ids[0], listed="\n".join(f"- `{name}`" for name in ids))


_TEXT = """\
# Problems

Each folder is one problem, and holds all there is to know of it:

| file | what it is |
| --- | --- |
| `INTERFACE.md` | how a candidate is constructed and called, what it returns, and the rules |
| `reference.py` | `Model`: the definition, in plain torch |
| `inputs.py` | `make_inputs(**axes, regime, seed, device)`: draws what `forward` is called with |
| `shapes.json` | the workloads: `axes` for `make_inputs`, `init` for `Model`; and the regimes |

`manifest.json` lists every file with its SHA-256.

The problems:

{listed}

## Run the reference

In a problem's folder, with torch alone:

```python
import json

from inputs import make_inputs
from reference import Model

shapes = json.load(open("shapes.json"))
workload = (shapes.get("smoke") or shapes["published"])[0]
inputs = make_inputs(**workload["axes"], regime=shapes["regimes"][0], seed=1, device="cpu")
print(Model(**workload["init"])(**inputs))
```

`published` and `added` workloads have production size; `smoke` ones, where there are any, are small
enough for any machine. A candidate is judged on all that fit the device.

## Hand a candidate in

Write one file that defines `class Model(torch.nn.Module)` as `INTERFACE.md` says, and name it
after the problem's folder: `{example}.py`. Several candidates for one problem lie in a folder of
that name. Whoever evaluates runs

    atrex-eval run {example}.py --backend NAME

or names the folder that the files lie in. In a run, the four files of the problem's folder here
lie in `problem/` beside the candidate.
"""
