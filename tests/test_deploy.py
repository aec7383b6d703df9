"""The files of ``deploy/``: systemd, Docker Compose and Kubernetes can read them, and what they say
of the server holds.
"""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from beanstalk_twisted.binlog.errors import Damaged, Incompatible
from beanstalk_twisted.daemon.command_line import BACKLOG, WRONG_USAGE, parse
from beanstalk_twisted.daemon.listening import STOP_LIMIT_S
from beanstalk_twisted.daemon.options import PORT
from beanstalk_twisted.daemon.sockets import NAME
from beanstalk_twisted.storage.watchdog import DEFAULT_LIMIT_S
from beanstalk_twisted.version import VERSION
from beanstalk_twisted.web.routes import ROUTES
from tests.server_process import LIMIT_S, ServerProcess
from tests.test_packaging import install_wheel, python, source, wheel

__all__ = ["python", "source", "wheel"]

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "systemd" / "beanstalk-twisted.service"
SOCKET = DEPLOY / "systemd" / "beanstalk-twisted.socket"
GUARDED = DEPLOY / "systemd" / "guarded.conf"
SYSCTL = DEPLOY / "systemd" / "90-beanstalk-twisted.conf"
DEBIAN = DEPLOY / "debian"
CONTAINER = DEPLOY / "container" / "Containerfile"

HTTP_PORT = "9300"
"""Of ``--http`` wherever one is named."""

EXPOSURE = 1.5
"""The worst that `systemd-analyze security` may say of the unit: "OK"; 9.6 is no protection."""


def systemd_analyze() -> str:
    found = shutil.which("systemd-analyze")
    if found is None:
        pytest.skip("systemd-analyze (Debian's package systemd) is not installed")
    return found


def unit(path: Path) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(strict=False, comment_prefixes="#")
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(path)
    return parser


def analyzed(*words: object) -> str:
    command = [systemd_analyze(), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def add(installed: Path, drop_in: Path) -> Path:
    text = drop_in.read_text().replace(program(), shutil.which("true") or "/bin/true")
    added = installed / f"{UNIT.name}.d" / drop_in.name
    added.parent.mkdir()
    added.write_text(text)
    return added


def check_unit(installed: Path, *others: Path) -> None:
    analyzed("verify", "--man=no", installed / UNIT.name, *others)
    threshold = f"--threshold={EXPOSURE * 10:g}"
    said = analyzed("security", "--offline=true", threshold, "--no-pager", installed / UNIT.name)
    assert "OK" in said.splitlines()[-1]


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Copy the units into a folder; the program is one that is there."""
    for path in (UNIT, SOCKET):
        text = path.read_text().replace(program(), shutil.which("true") or "/bin/true")
        (tmp_path / path.name).write_text(text)
    return tmp_path


def program() -> str:
    return shlex.split(unit(UNIT)["Service"]["ExecStart"])[0]


# systemd.


def test_systemd_takes_the_units_and_they_are_protected(installed: Path) -> None:
    check_unit(installed, installed / SOCKET.name)


def test_systemd_takes_what_is_added_for_tls_and_rights(installed: Path) -> None:
    added = add(installed, GUARDED)
    check_unit(installed)
    with added.open("a") as file:
        file.write("NoSuchSetting=yes\n")
    with pytest.raises(AssertionError, match="NoSuchSetting"):
        check_unit(installed)


def test_the_limits_of_the_unit_are_wider_than_those_of_the_server() -> None:
    service = unit(UNIT)["Service"]
    assert service["Type"] == "notify"
    assert service["WatchdogSec"] == "2min" and DEFAULT_LIMIT_S < 120
    assert int(service["TimeoutStopSec"]) > STOP_LIMIT_S


FINAL_CODES = {str(WRONG_USAGE), str(Damaged.exit_code), str(Incompatible.exit_code)}
"""Exit codes after which another start would change nothing; after all others one may help."""

START_LIMIT = (10, 5)
"""systemd's own: it gives a unit up that starts more than 5 times in 10 s."""


def unit_of_each_core() -> str:
    text = (ROOT / "docs" / "scaling.md").read_text()
    [shown] = re.findall(
        r"```ini\n(# /etc/systemd/system/beanstalk-twisted@.*?)```", text, re.DOTALL
    )
    return str(shown)


def test_systemd_starts_the_server_again_after_whatever_a_restart_may_mend() -> None:
    page = configparser.RawConfigParser()
    page.optionxform = str  # type: ignore[assignment,method-assign]
    page.read_string(unit_of_each_core())
    for read in (unit(UNIT), page):
        service = read["Service"]
        assert service["Restart"] == "on-failure"
        assert set(service["RestartPreventExitStatus"].split()) == FINAL_CODES
        seconds, starts = START_LIMIT
        assert not {"StartLimitIntervalSec", "StartLimitBurst"} & set(read["Unit"])
        assert int(service["RestartSec"]) * starts > seconds
    replicated = unit(DEPLOY / "systemd" / "replicated.conf")
    assert not {"Restart", "RestartPreventExitStatus"} & set(replicated["Service"])
    assert int(replicated["Service"]["RestartSec"]) > 0
    assert replicated["Unit"]["StartLimitIntervalSec"] == "0"
    assert "Restart" not in unit(GUARDED)["Service"]
    assert "Restart" not in (DEBIAN / "rules").read_text(), "the package has the same unit"


def test_containers_are_started_again() -> None:
    """With a pause that grows; neither Docker nor Kubernetes looks at the exit code."""
    services = [
        service
        for path in DEPLOY.rglob("compose*.yaml")
        for service in documents(path)[0]["services"].values()
    ]
    assert len(services) > 5
    assert {service["restart"] for service in services} == {"unless-stopped"}
    commands = re.findall("docker run -d.*", (ROOT / "docs" / "operations.md").read_text())
    assert commands and all("--restart unless-stopped" in command for command in commands)
    for each in documents(DEPLOY / "kubernetes" / "beanstalk-twisted.yaml"):
        if each["kind"] == "StatefulSet":
            assert "restartPolicy" not in each["spec"]["template"]["spec"], "Always is the default"


def test_the_options_of_the_unit_are_the_servers() -> None:
    words = shlex.split(unit(UNIT)["Service"]["ExecStart"])
    assert words.pop() == "$OPTIONS"
    assert checked(words[1:])["binlog"]


def test_the_socket_is_the_one_that_the_server_serves() -> None:
    socket = unit(SOCKET)["Socket"]
    assert socket["FileDescriptorName"] == NAME
    assert socket["ListenStream"] == "127.0.0.1:11300"
    settings = dict(
        re.split(r"\s*=\s*", line)
        for line in SYSCTL.read_text().splitlines()
        if line and not line.startswith("#")
    )
    assert int(settings["net.core.somaxconn"]) >= int(socket["Backlog"]) >= BACKLOG


def checked(words: list[str]) -> dict[str, Any]:
    return parse(words)


# The Debian package; tests/installs/test_debian_package.py builds and installs it.


def test_the_version_of_the_debian_package_is_ours() -> None:
    head = (DEBIAN / "changelog").read_text().split(" ", 2)
    assert head[:2] == ["beanstalk-twisted", f"({VERSION.partition('+')[0]})"]


def test_the_defaults_of_the_debian_package_are_options_that_there_are() -> None:
    lines = (DEBIAN / "beanstalk-twisted.default").read_text().splitlines()
    settings = [line.lstrip("# ") for line in lines if line.lstrip("# ").startswith("OPTIONS=")]
    shown, given = [each.partition("=")[2].split() for each in settings]
    assert checked(shown)["http"] == (HTTP_PORT,) and given == []
    assert unit(UNIT)["Service"]["EnvironmentFile"] == "-/etc/default/beanstalk-twisted"


@pytest.mark.parametrize("script", ["postinst", "prerm", "postrm"])
def test_a_shell_takes_the_scripts_of_the_debian_package(script: str) -> None:
    for path in (DEBIAN / f"beanstalk-twisted.{script}", DEBIAN / "pages.sh"):
        subprocess.run(["sh", "-n", path], check=True, timeout=LIMIT_S)


# The container.


def steps() -> list[list[tuple[str, str]]]:
    """The stages of the container file: instructions, and what is behind each; but for what is
    before the first.
    """
    stages: list[list[tuple[str, str]]] = []
    for line in CONTAINER.read_text().splitlines():
        if line and not line.startswith("#"):
            instruction, _, rest = line.partition(" ")
            if instruction == "FROM":
                stages.append([])
            if stages:
                stages[-1].append((instruction, rest))
    return stages


def final(instruction: str) -> str:
    """What the one instruction of this name of the last stage says."""
    [found] = [rest for name, rest in steps()[-1] if name == instruction]
    return found


def test_the_image_is_made_in_two_stages_and_needs_no_shell() -> None:
    build, image = steps()
    assert ("ENV", "BEANSTALK_TWISTED_COMPILED=${COMPILED}") in build
    assert ("ARG", "COMPILED=1") in build
    programs = [json.loads(rest)[0] for name, rest in image if name == "RUN"]
    assert "sh" not in programs and not {"apt-get", "pip"} & set(programs)
    assert json.loads(final("ENTRYPOINT")) == [Path(program()).name]
    assert final("STOPSIGNAL") == "SIGTERM"


def test_the_image_does_not_run_as_root_and_owns_its_volume() -> None:
    user = final("USER").partition(":")[0]
    commands = [" ".join(json.loads(rest)) for name, rest in steps()[-1] if name == "RUN"]
    assert int(user) > 0
    assert any(f"--uid {user} " in command for command in commands)
    assert any(command.endswith(final("VOLUME")) for command in commands)
    assert checked(json.loads(final("CMD")))["binlog"] == final("VOLUME")


@pytest.mark.exhaustive
def test_what_the_image_is_made_by_makes_a_server_that_is_well(
    python: Path, source: Path, wheel: Path, tmp_path: Path
) -> None:
    install_wheel(python, source, wheel)
    scripts = python.parent
    [entry] = json.loads(final("ENTRYPOINT"))
    arguments = json.loads(final("CMD"))
    arguments[arguments.index("0.0.0.0")] = "127.0.0.1"
    arguments[arguments.index(final("VOLUME"))] = str(tmp_path / "volume")
    program, *probe = json.loads(final("HEALTHCHECK").partition(" CMD ")[2])
    with ServerProcess([str(scripts / entry), *arguments, "-p", "0"], tmp_path) as server:
        at = {"BEANSTALK_SERVER": f"127.0.0.1:{server.port()}", "PATH": str(scripts)}
        command = [str(scripts / program), *probe]
        well = subprocess.run(command, env=at, capture_output=True, text=True, timeout=LIMIT_S)
        assert (well.returncode, well.stdout) == (0, "well: 0 jobs\n")
        server.terminate()
        gone = subprocess.run(command, env=at, capture_output=True, timeout=LIMIT_S)
        assert gone.returncode != 0
    assert (tmp_path / "volume").is_dir()


# Compose and Kubernetes.


def documents(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text()))


def test_the_compose_file_names_what_is_there() -> None:
    folder = DEPLOY / "container"
    [compose] = documents(folder / "compose.yaml")
    services = compose["services"]
    assert set(services) == {"beanstalk", "prometheus", "grafana"}
    assert compose["volumes"].keys() == {"jobs", "metrics", "grafana"}
    build = services["beanstalk"]["build"]
    assert (folder / build["context"] / build["dockerfile"]).resolve() == CONTAINER
    assert int(services["beanstalk"]["stop_grace_period"].removesuffix("s")) > STOP_LIMIT_S
    for service in services.values():
        for volume in service["volumes"]:
            name = volume.split(":")[0]
            assert name in compose["volumes"] or (folder / name).is_file()


def mounted(service: dict[str, Any], inside: str) -> Path:
    """The file of ours that a container of the compose file has at a path."""
    volumes = [volume.split(":") for volume in service["volumes"]]
    [found] = [outside for outside, target, *_ in volumes if target == inside]
    return (DEPLOY / "container" / str(found)).resolve()


def http_port(options: dict[str, Any]) -> str:
    [endpoint] = options["http"]
    return str(endpoint).rpartition(":")[2]


def test_prometheus_asks_where_the_server_answers() -> None:
    [compose] = documents(DEPLOY / "container" / "compose.yaml")
    services = compose["services"]
    config = mounted(services["prometheus"], "/etc/prometheus/prometheus.yml")
    [scraping] = documents(config)
    server = checked(services["beanstalk"]["command"])
    assert server["binlog"] == final("VOLUME")
    [name] = server["http_hosts"]
    [job] = scraping["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"{name}:{http_port(server)}"]}]
    assert name in services
    [rules] = scraping["rule_files"]
    [alerts] = documents(mounted(services["prometheus"], rules))
    [down] = [rule for rule in alerts["groups"][0]["rules"] if rule["alert"] == "BeanstalkdDown"]
    assert down["expr"] == f'up{{job="{job["job_name"]}"}} == 0'


def test_grafana_reads_that_prometheus_and_has_the_dashboard() -> None:
    [compose] = documents(DEPLOY / "container" / "compose.yaml")
    grafana = compose["services"]["grafana"]
    provisioning = "/etc/grafana/provisioning"
    [sources] = documents(mounted(grafana, f"{provisioning}/datasources/beanstalk.yaml"))
    [source] = sources["datasources"]
    assert source["url"] == "http://prometheus:9090" and source["isDefault"]
    [providers] = documents(mounted(grafana, f"{provisioning}/dashboards/beanstalk.yaml"))
    [provider] = providers["providers"]
    shipped = mounted(grafana, f"{provider['options']['path']}/beanstalk.json")
    [variable, *_] = json.loads(shipped.read_text())["templating"]["list"]
    assert (variable["type"], variable["query"]) == ("datasource", source["type"])


def test_ports_are_the_same_in_all_files_and_on_all_pages() -> None:
    files = [path for path in DEPLOY.rglob("*") if path.is_file()]
    pages = [*files, *(ROOT / "docs").glob("*.md"), *ROOT.glob("README*.md")]
    shown = {
        (path.name, port)
        for path in pages
        for port in re.findall(r"--http[ =](?:\S*:)?(\d+)", path.read_text())
    }
    assert {port for _, port in shown} == {HTTP_PORT}
    named = {"beanstalk-twisted.yaml", "compose.yaml", "monitoring.md", "console.md"}
    assert named <= {name for name, _ in shown}


def test_ports_that_are_published_are_those_that_the_server_opens() -> None:
    [compose] = documents(DEPLOY / "container" / "compose.yaml")
    published = [port.split(":") for port in compose["services"]["beanstalk"]["ports"]]
    assert all(host == "127.0.0.1" and outer == inner for host, outer, inner in published)
    ports = {inner for _, _, inner in published}
    assert ports == {"11300", HTTP_PORT} == set(final("EXPOSE").split())


def test_the_pod_is_what_the_image_is() -> None:
    kinds = {each["kind"]: each for each in documents(DEPLOY / "kubernetes/beanstalk-twisted.yaml")}
    assert set(kinds) == {"Service", "StatefulSet", "PodDisruptionBudget"}
    spec = kinds["StatefulSet"]["spec"]
    labels = spec["template"]["metadata"]["labels"]
    pod = spec["template"]["spec"]
    [container] = pod["containers"]
    assert f"{pod['securityContext']['runAsUser']}" == final("USER").partition(":")[0]
    assert pod["terminationGracePeriodSeconds"] > STOP_LIMIT_S
    assert container["image"].endswith(VERSION.partition("+")[0])
    [mount] = container["volumeMounts"]
    assert mount["mountPath"] == final("VOLUME")
    assert checked(container["args"])["binlog"].startswith(mount["mountPath"] + "/")
    assert mount["name"] == spec["volumeClaimTemplates"][0]["metadata"]["name"]
    for other in (kinds["Service"]["spec"], kinds["PodDisruptionBudget"]["spec"]):
        selector = other["selector"]
        assert labels == selector.get("matchLabels", selector)


def test_the_ports_of_the_pod_are_the_servers() -> None:
    kinds = {each["kind"]: each for each in documents(DEPLOY / "kubernetes/beanstalk-twisted.yaml")}
    template = kinds["StatefulSet"]["spec"]["template"]
    [container] = template["spec"]["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports == {each["name"]: each["port"] for each in kinds["Service"]["spec"]["ports"]}
    assert ports == {"beanstalk": int(PORT), "http": int(http_port(checked(container["args"])))}
    assert template["metadata"]["annotations"]["prometheus.io/port"] == str(ports["http"])


def test_probes_ask_over_http_and_give_a_hanging_disk_its_time() -> None:
    [spec] = [
        each["spec"]["template"]["spec"]
        for each in documents(DEPLOY / "kubernetes" / "beanstalk-twisted.yaml")
        if each["kind"] == "StatefulSet"
    ]
    [container] = spec["containers"]
    paths = {"startupProbe": "/healthz", "readinessProbe": "/readyz", "livenessProbe": "/healthz"}
    for name, path in paths.items():
        assert container[name]["httpGet"] == {"path": path, "port": "http"}
        assert path in {route.path for route in ROUTES}
    liveness = container["livenessProbe"]
    assert liveness["periodSeconds"] * liveness["failureThreshold"] > DEFAULT_LIMIT_S
