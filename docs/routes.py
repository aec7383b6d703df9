"""Write the tables of the API in docs/monitoring.md from the table of routes::

python docs/routes.py
"""

import re
from pathlib import Path
from typing import Final

from beanstalk_twisted.web.routes import API, CRITERIA, ROUTES, Route
from beanstalk_twisted.web.schemas import Field

PAGE: Final = Path(__file__).with_name("monitoring.md")

TABLES: Final = {
    "GET": "| path under `/api/v1` | what |\n| --- | --- |\n",
    "POST": "| path under `/api/v1` | what | fields |\n| --- | --- | --- |\n",
}


def page(text: str) -> str:
    """Return the page with its tables rewritten.

    :param text: with each table between ``<!-- GET -->`` and ``<!-- end of GET -->``.
    """
    for method, head in TABLES.items():
        rows = [row(each) for each in ROUTES if each.path.startswith(API) and each.method == method]
        begin, end = f"<!-- {method} -->\n", f"<!-- end of {method} -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = "".join([before, begin, head, *rows, end, after])
    return text


def row(route: Route) -> str:
    """Return the table row of a route."""
    query = names(route.query, "{}=", "&")
    path = f"`{route.path.removeprefix(API)}{'?' if query else ''}{query}`"
    summary = re.sub(r"\bstats(-job)?\b", r"`\g<0>`", route.summary)
    if route.method == "GET":
        return f"| {path} | {summary} |\n"
    fields = "keys of the policy" if route.body is None else names(route.body, "`{}`", ", ")
    return f"| {path} | {summary} |{f' {fields}' if fields else ''} |\n"


def names(fields: tuple[Field, ...], form: str, between: str) -> str:
    """Join the names of fields; those that say which jobs are meant are one ellipsis."""
    shown = [form.format(each.name) for each in fields if each not in CRITERIA]
    return between.join(["…", *shown] if CRITERIA[0] in fields else shown)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
