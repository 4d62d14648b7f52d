"""Small studies, and files that hold one."""

import textwrap

SMALL = {"environments": [{"name": "Bump"}], "policies": [{"name": "uniform"}], "seeds": 2, "horizon": 10}


def written(folder, text, name="study.toml"):
    path = folder / name
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path
