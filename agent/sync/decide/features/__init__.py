"""The features of a pass, in the order in which they act."""

from agent.sync.decide.feature import Feature
from agent.sync.decide.features.boot import Boot
from agent.sync.decide.features.hold import Hold
from agent.sync.decide.features.nova_root import NovaRoot
from agent.sync.decide.features.odd_devices import OddDevices
from agent.sync.decide.features.one_time import OneTime
from agent.sync.decide.features.renamed_class import RenamedClass
from agent.sync.decide.features.second_writer import SecondWriter
from agent.sync.decide.features.shared_disk import SharedDisk

Features = tuple[type[Feature], ...]
FEATURES: Features = (SecondWriter, NovaRoot, RenamedClass, SharedDisk, OneTime, OddDevices, Boot, Hold)

OF_POOLS: Features = (SecondWriter, NovaRoot)
"""Those that act on a shared pool, too: it is no host, and its options are not a host's."""
