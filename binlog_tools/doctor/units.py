"""Options of servers that systemd starts: its units, their drop-ins, and the files they name."""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

FOLDERS: Final = (
    "etc/systemd/system", "run/systemd/system", "usr/local/lib/systemd/system",
    "usr/lib/systemd/system", "lib/systemd/system",
)  # fmt: skip
"""Where units are (systemd.unit(5)); a file hides those of the same name in later folders."""

DEFAULTS: Final = "etc/default/beanstalk-twisted"
"""The file for options that our unit and the Debian package name."""

COMMENTS: Final = re.compile(r"^[ \t]*[#;].*\n?", re.MULTILINE)

SEPARATORS: Final = re.compile(r"[\s\"'=]+")
"""Between words, also of a shell's command line or a variable."""


def configured(root: Path = Path("/")) -> Mapping[Path, list[str]]:
    """Read the files of all servers, and the file for options.

    :return: the words of the command lines that each has; an option and its value are two.
    """
    found: dict[Path, list[str]] = {root / DEFAULTS: []}
    for files in _services(root).values():
        commands = _effective("ExecStart", files)
        if not any(_is_server(_words(text)) for _, text in commands):
            continue
        for path, text in commands + _effective("Environment", files):
            found.setdefault(path, []).extend(_words(text))
        for _, text in _effective("EnvironmentFile", files):
            found.setdefault(root / text.lstrip("-/"), [])
    for path, words in found.items():
        if not words:
            # The last value of a variable holds.
            words += _words(" ".join(dict(_assignments(path)).values()))
    return found


def _services(root: Path) -> Mapping[str, list[Path]]:
    """Return the files of each service that are in force: its unit, then its drop-ins by name."""
    files: dict[str, Path] = {}
    for folder in FOLDERS:
        for pattern in ("*.service", "*.service.d/*.conf"):
            for path in (root / folder).glob(pattern):
                files.setdefault(str(path.relative_to(root / folder)), path)
    services: dict[str, list[Path]] = {}
    for name in sorted(files, key=lambda each: (each.count("/"), each.rpartition("/")[2])):
        # The drop-ins of an instance belong to its template.
        service = re.sub(r"@[^.]*", "@", name.partition(".service")[0])
        services.setdefault(service, []).append(files[name])
    return services


def _effective(setting: str, files: list[Path]) -> list[tuple[Path, str]]:
    """Return the values of a setting that are in force; an empty one takes back those before."""
    values: list[tuple[Path, str]] = []
    for path in files:
        for name, text in _assignments(path):
            if name == setting:
                values = [*values, (path, text)] if text else []
    return values


def _assignments(path: Path) -> Iterator[tuple[str, str]]:
    """Read the lines ``NAME=VALUE`` of a unit or a file of variables; those it can read."""
    text = ""
    with suppress(OSError):
        text = path.read_text(errors="replace")
    for line in COMMENTS.sub("", text).replace("\\\n", " ").splitlines():
        name, _, value = line.partition("=")
        yield name.strip(), value.strip()


def _words(text: str) -> list[str]:
    return [word for word in SEPARATORS.split(text) if word]


def _is_server(words: list[str]) -> bool:
    programs = {word.lstrip("@-:+!").rpartition("/")[2] for word in words}
    return bool(programs & {"beanstalk-twisted", "beanstalk_twisted"}) or (
        {"twistd", "beanstalk"} <= programs
    )
