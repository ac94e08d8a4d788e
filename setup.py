"""Distribution ``compute-node-agent``: three packages and one command."""

import re
from pathlib import Path

from setuptools import find_packages, setup

VERSION = re.search(r'VERSION = "(.+)"', Path(__file__).with_name("agent").joinpath("__init__.py").read_text())[1]
UDEV = ["pyudev>=0.24,<1"]
LIBVIRT = ["libvirt-python>=9.0,<13"]
OFFLINE = ["psycopg2-binary>=2.9,<3", "PyMySQL>=1.1.1,<2"]  # CVE-2024-36039: keys of JSON as SQL
EMBEDDED = ["openstack-placement>=16.0,<17"]
MANUAL = ["argparse-manpage>=4.6,<5", "shtab>=1.7,<2"]  # manual pages and completions, when a package is built
BROWSER = ["playwright>=1.50,<2", "axe-playwright-python>=0.1.4,<0.2"]  # for pictures; axe-core is inside
SIMULATE = ["simpy>=4.1,<5", "matplotlib>=3.9,<4"]
DOCS = ["sphinx>=8.2,<10", "myst-parser>=4,<6", "furo>=2025.7,<2027"]
CHECK = [  # with what is above, all that lint, types and unit tests need; each has a wheel, so pip alone will do
    "cryptography>=42,<50",
    "hypothesis>=6.100,<7",
    "import-linter>=2.5,<3",
    "mypy>=2.1,<3",
    "pytest>=8.4,<10",
    "pytest-cov>=6,<8",
    "pytest-xdist>=3.6,<4",
    "ruff>=0.17,<0.18",
    "simpy>=4.1,<5",
    "types-PyYAML>=6.0.12,<7",
    "types-jsonschema>=4.23,<5",
    "types-psutil>=7,<8",
    "types-requests>=2.32,<3",
]
TEST = [
    "ansible-core>=2.18.1,<2.20",  # CVE-2024-11079: text of a host as a template
    "gunicorn>=23,<27",
    "keystone>=30.0,<31",
    "keystonemiddleware>=10.9,<14",
    "reno>=4.1,<5",
]

setup(
    name="compute-node-agent",
    version=VERSION,
    description="Reports a host's CPUs, memory, disk and devices to OpenStack placement as one provider tree",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=find_packages(include=["agent*", "drivers*", "reportclient*"]),
    package_data={
        "agent": ["py.typed"],
        "agent.command.picture": ["*.css", "*.j2"],
        "agent.sync": ["*.json"],
        "drivers": ["py.typed", "made_up/*.json"],
        "reportclient": ["py.typed"],
    },
    install_requires=[
        "Jinja2>=3.1.6,<4",  # CVE-2025-27516: code from a template; none of ours is from elsewhere
        "jsonschema>=4.23,<5",
        "keystoneauth1>=5.10,<6",
        "msgspec>=0.23,<1",  # older ones crash where two threads read the first value of a class
        "os-resource-classes>=1.1,<2",
        "os-traits>=3.5,<4",
        "oslo.concurrency>=7.1,<8",
        "oslo.config>=9.7,<11",
        "oslo.log>=7,<9",
        "oslo.service>=4.2,<5",
        "prometheus_client>=0.21,<1",
        "psutil>=6.1,<8",
        "PyYAML>=6.0,<7",
        "requests>=2.32.4,<3",  # CVE-2024-47081: the login of .netrc goes to another host
        "urllib3>=2.7,<3",  # CVE-2026-21441, CVE-2026-44432: unpacks more of an answer than is read, past our limit
    ],
    extras_require={
        "libvirt": LIBVIRT + UDEV,
        "manual": MANUAL,
        "docs": DOCS,
        "browser": BROWSER,
        "simulate": SIMULATE,
        "embedded": EMBEDDED,
        "offline": EMBEDDED + OFFLINE,
        "check": UDEV + EMBEDDED + OFFLINE + MANUAL + CHECK,
        "test": LIBVIRT + UDEV + EMBEDDED + OFFLINE + MANUAL + CHECK + TEST,
    },
    entry_points={
        "console_scripts": ["compute-node-agent = agent.command.arguments:main"],
        "oslo.config.opts": ["compute-node-agent = agent.settings.options:list_opts"],
    },
)
