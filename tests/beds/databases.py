"""Database servers of our own on loopback: PostgreSQL and MariaDB as Debian packages them, never the system's."""

import os
import pwd
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from beds.process import LOOPBACK, BedError, free_port, run, start, stop, wait_until_listens

POSTGRESQL = Path("/usr/lib/postgresql")
NOBODY = "nobody"  # neither server runs as root


@contextmanager
def postgresql(directory: Path) -> Iterator[str]:
    """The URL of an empty database of a PostgreSQL server with its log in ``directory``."""
    binaries = max(POSTGRESQL.glob("*/bin"), default=None)
    if binaries is None:
        raise BedError(f"no PostgreSQL below {POSTGRESQL}: tools/host.sh databases installs it")
    port = free_port()
    settings = {"listen_addresses": LOOPBACK, "port": port, "unix_socket_directories": "", "max_connections": 60}
    options = [f"-c{name}={value}" for name, value in settings.items()]
    with _owned(directory) as (data, log):
        made = ["--auth=trust", "--username=placement", "--no-sync", "--encoding=UTF8", "--locale=C"]
        run([*_as_nobody(), str(binaries / "initdb"), f"--pgdata={data}", *made], directory=directory, log=log)
        child = start(
            [*_as_nobody(), str(binaries / "postgres"), "-D", str(data), *options], directory=directory, log=log
        )
        try:
            wait_until_listens(port, log)
            _create(f"postgresql://placement@{LOOPBACK}:{port}/postgres")
            yield f"postgresql://placement:secret@{LOOPBACK}:{port}/placement"
        finally:
            stop(child)


@contextmanager
def mariadb(directory: Path, *names: str) -> Iterator[str]:
    """The URL of the empty database ``placement`` of a MariaDB server, which has ``names`` too; its log is there."""
    program = shutil.which("mariadbd", path="/usr/sbin:/usr/bin")
    if program is None:
        raise BedError("no mariadbd here: tools/host.sh databases installs it")
    port = free_port()
    with _owned(directory) as (data, log):
        made = ["--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal", "--skip-test-db"]
        run([*_as_nobody(), "mariadb-install-db", *made], directory=directory, log=log)
        options = [f"--datadir={data}", f"--port={port}", f"--bind-address={LOOPBACK}", f"--socket={data}/sock"]
        child = start(
            [*_as_nobody(), program, "--no-defaults", *options, f"--pid-file={data}/pid", "--skip-name-resolve"],
            directory=directory,
            log=log,
        )
        try:
            wait_until_listens(port, log)
            _create_mysql(f"{data}/sock", ("placement", *names), directory, log)
            yield f"mysql://placement:secret@{LOOPBACK}:{port}/placement"
        finally:
            stop(child, patience=15)


def with_driver(url: str) -> str:
    """The same URL as placement's own configuration needs it, where SQLAlchemy's usual driver is another."""
    return url.replace("postgresql://", "postgresql+psycopg2://").replace("mysql://", "mysql+pymysql://")


def _as_nobody() -> list[str]:
    return ["setpriv", f"--reuid={NOBODY}", "--regid=nogroup", "--clear-groups", "--"] if os.geteuid() == 0 else []


@contextmanager
def _owned(directory: Path) -> Iterator[tuple[Path, Path]]:
    """
    A folder for data that ``nobody`` can reach, and a log in ``directory``.

    The data are not below ``directory``: each start of pytest closes the folders of all its runs to other users.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="compute-node-agent-", ignore_cleanup_errors=True) as folder:
        data = Path(folder, "data")
        data.mkdir()
        if os.geteuid() == 0:
            owner = pwd.getpwnam(NOBODY)
            os.chown(data, owner.pw_uid, owner.pw_gid)
            Path(folder).chmod(0o711)
        yield data, directory / "server.log"


def _create(url: str) -> None:
    import psycopg2

    deadline = time.monotonic() + 30
    while True:
        try:
            connection = psycopg2.connect(url)
            break
        except psycopg2.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE placement")
    connection.close()


def _create_mysql(sock: str, names: Iterable[str], directory: Path, log: Path) -> None:
    made = "".join(
        f"CREATE DATABASE {one} CHARACTER SET utf8mb3; GRANT ALL ON {one}.* TO placement@'%'; " for one in names
    )
    statements = f"CREATE USER placement@'%' IDENTIFIED BY 'secret'; {made}"
    command = ["mariadb", "--no-defaults", f"--socket={sock}", "--user=root", f"--execute={statements}"]
    run(command, directory=directory, log=log)
