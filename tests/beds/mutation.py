"""
Changes of real files, for tests of parsers: parts are removed, repeated, nested, exchanged, renamed or get odd values.

An edit is a place, what is done there, and a value, by number; so Hypothesis finds the smallest one that does harm.
"""

import copy
import io
import json
import re
import tarfile
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from xml.etree import ElementTree

from hypothesis import strategies as st

Edit = tuple[int, str, int]  # place, what, number of a value
WHAT = ("value", "remove", "repeat", "nest", "copy", "rename", "text")
edits = st.lists(st.tuples(st.integers(0, 9999), st.sampled_from(WHAT), st.integers(0, 999)), min_size=1, max_size=4)
LARGEST = 2 << 20  # bytes of a changed file

_DEEP = "@deep@"  # stands for a part that is nested more deeply than a library could write it
_TEXTS = (
    *(
        "",
        " ",
        "0",
        "-1",
        "+1",
        "1e5",
        "nan",
        "0x10",
        "1_000",
        "\u0661",
        "\u00b2",
        "9" * 19,
        "9" * 5000,
        "1" + "0" * 30,
    ),
    *(
        "a" * 100_000,
        "a\0b",
        "\x1b[2J\x1b]0;x\x07",
        "a\nb: [",
        "\u202e\u2066",
        "\ud800",
        "\U0001f600",
        "%s{}$(",
        "<&>\"'",
    ),
    *("..", "/", "/etc/passwd", "../" * 20 + "etc/passwd", ".", "a/" * 200, "C" * 300),
    *("0-4095", "0-99999999", "3-1", "^5", "0,^0", ",".join(map(str, range(5000))), "0-1," * 3000),
    *(
        "0000:00:00.0",
        "ffff:ff:1f.7",
        "fffff:ff:ff.f",
        "00000000-0000-0000-0000-000000000000",
        "VCPU",
        "CUSTOM_X",
        _DEEP,
    ),
)
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**63, 2**64, 10**30, 1.5, 1e308, float("inf"), float("nan"), [], {}, [[]]),
    *({"": None}, [None], [{}], {"a": {"b": []}}),
    *_TEXTS,
)
_COUNTS = (2, 3, 100, 5000)
_DEPTHS = (10, 60, 500, 3000, 100_000)


def changed(name: str, data: bytes, these: Iterable[Edit]) -> bytes:
    """Return a file's data after these edits; what its name ends in says how it is read."""
    if not (these := [*these]):
        return data
    kinds: Mapping[str, Callable[[str, list[Edit]], str]] = {
        "json": changed_json,
        "jsonl": _changed_lines,
        "xml": _changed_xml,
    }
    return kinds.get(name.rpartition(".")[2], _changed_text)(data.decode(errors="replace"), these).encode(
        errors="surrogatepass"
    )


def changed_json(text: str, these: list[Edit]) -> str:
    """Return a JSON text after these edits."""
    if not these:
        return text
    try:
        root = [json.loads(text)]
    except ValueError:
        return _changed_text(text, these)
    for place, what, number in these:
        if what != "text":
            _change_value(root, place, what, number)
    written = json.dumps(root[0], default=str)[: 4 * LARGEST]
    depth = _DEPTHS[these[0][2] % len(_DEPTHS)]
    nested = ("[" * depth + "]" * depth) if these[0][0] % 2 else '{"a":' * depth + "1" + "}" * depth
    return _changed_text(written.replace(f'"{_DEEP}"', nested), [one for one in these if one[1] == "text"])


def _change_value(root: list[Any], place: int, what: str, number: int) -> None:
    """Change one part of what ``root`` has, in place."""
    places = [*_places(root)]
    within, key = places[place % len(places)]
    match what:
        case "value":
            within[key] = copy.deepcopy(_VALUES[number % len(_VALUES)])
        case "remove" if within is not root:
            del within[key]
        case "repeat":
            times = min(_COUNTS[number % len(_COUNTS)], 1 + LARGEST // _json_size(within[key]))
            several = [copy.deepcopy(within[key]) for _ in range(times)]  # else the next edit would change all of them
            if isinstance(within, list) and within is not root:
                within[key:key] = several
            else:
                within[key] = several
        case "nest":
            within[key] = (lambda one: [one], lambda one: {"a": one}, lambda _: _DEEP)[number % 3](within[key])
        case "copy":
            other, there = places[number % len(places)]
            within[key] = copy.deepcopy(other[there])
        case "rename" if isinstance(within, dict):
            texts = [one for one in _TEXTS if one != _DEEP] + [str(there) for _, there in places]
            within[texts[number % len(texts)]] = within.pop(key)


def _json_size(value: Any) -> int:
    """About how many bytes a value takes as JSON; more than ``LARGEST`` is not counted to its end."""
    bytes_ = 8
    for within, key in _places([value]):
        one = within[key]
        bytes_ += 8 + (len(one) if isinstance(one, str) else 0)
        if bytes_ > LARGEST:
            break
    return bytes_


def _places(value: Any) -> Iterable[tuple[Any, Any]]:
    """Yield each place of a decoded JSON value, as its container and its key there."""
    found = [*(value.items() if isinstance(value, dict) else enumerate(value))]
    for key, one in found:
        yield value, key
        if isinstance(one, dict | list):
            yield from _places(one)


def _changed_lines(text: str, these: list[Edit]) -> str:
    """Return a file of one JSON text a line after these edits, each in one line; some in a text that is JSON itself."""
    lines = text.splitlines()
    for place, what, number in these:
        if what == "text" or not lines:
            return _changed_text("\n".join(lines) + "\n", these[:1])
        at = place % len(lines)
        if number % 10 == 0:
            lines[at : at + 1] = [] if what == "remove" else [lines[at]] * 2
        else:
            lines[at] = changed_line(lines[at], [(place // len(lines), what, number // 10)])
    return "\n".join(lines) + "\n"


def changed_line(line: str, these: list[Edit]) -> str:
    """Return one line of recorded requests after edits; four of five are in the text of the answer."""
    if not these:
        return line
    record = json.loads(line)
    if isinstance(record, dict) and isinstance(record.get("text"), str) and these[0][0] % 5:
        record["text"] = changed_json(record["text"], [(place // 5, *more) for place, *more in these])  # type: ignore[misc]
        return json.dumps(record)
    return changed_json(line, these)


def _changed_xml(text: str, these: list[Edit]) -> str:
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError:
        return _changed_text(text, these)
    for place, what, number in these:
        if what != "text":
            _change_element(root, place, what, number)
    written = ElementTree.tostring(root, encoding="unicode", short_empty_elements=True)[: 4 * LARGEST]
    depth = _DEPTHS[these[0][2] % len(_DEPTHS)]
    deep = written.replace(_DEEP, "<a>" * depth + "</a>" * depth, 1)
    return _changed_text(deep, [one for one in these if one[1] == "text"])


def _change_element(root: ElementTree.Element, place: int, what: str, number: int) -> None:
    """Change one element, in place."""
    within = {child: parent for parent in root.iter() for child in parent}
    every = [*root.iter()]
    one, text = every[place % len(every)], _xml_text(number)
    match what:
        case "value" if one.attrib and number % 2:
            one.set([*one.attrib][place // len(every) % len(one.attrib)], text)
        case "value":
            one.text = text
        case "remove" if one.attrib and number % 2:
            one.attrib.pop([*one.attrib][place // len(every) % len(one.attrib)])
        case "remove" if one in within:
            within[one].remove(one)
        case "repeat" if one in within:
            times = min(_COUNTS[number % len(_COUNTS)], 1 + LARGEST // _size(one))
            within[one].extend(copy.deepcopy(one) for _ in range(times))
        case "nest":
            one.text = (one.text or "") + _DEEP
        case "copy":
            one.append(copy.deepcopy(every[number % len(every)]))
        case "rename":
            one.tag = every[number % len(every)].tag


def _size(element: ElementTree.Element) -> int:
    return len(ElementTree.tostring(element))


def _xml_text(number: int) -> str:
    """Return an odd text that XML can have."""
    return re.sub("[\0-\x08\x0b-\x1f\ud800-\udfff]", "\x85", _TEXTS[number % len(_TEXTS)])


def _changed_text(text: str, these: list[Edit]) -> str:
    for place, what, number in these:
        parts = [*re.finditer(r"[\w.:-]+|\n[^\n]*|\W", text)]
        if not parts:
            return _TEXTS[number % len(_TEXTS)]
        begin, end = parts[place % len(parts)].span()
        part, odd = text[begin:end], _TEXTS[number % len(_TEXTS)]
        depth = _DEPTHS[number % len(_DEPTHS)]
        new = {
            "remove": "",
            "repeat": part * _COUNTS[number % len(_COUNTS)],
            "nest": ("[", "{a: ", "- ", '{"a":', "\n ")[place % 5] * depth + part,
            "copy": part + parts[number % len(parts)][0],
            "text": part + odd,
        }.get(what, odd)
        text = (text[:begin] + new + text[end:])[: 4 * LARGEST]
    return text


_TYPES = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, b"g", b"x", b"L", b"S")


def packed(files: Mapping[str, bytes], these: Iterable[Edit], top: str = "case") -> bytes:
    """Return a ``.tar.gz`` of files whose members and bytes are changed by these edits."""
    members = [(tarfile.TarInfo(f"{top}/{name}"), data) for name, data in files.items()]
    these = [*these]
    for place, what, number in these:
        _change_member(members, place, what, number)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=1) as tar:
        for member, data in members:
            member.size = member.size or (len(data) if member.isreg() else 0)
            try:
                tar.addfile(member, io.BytesIO(data) if len(data) >= member.size else None)
            except (ValueError, UnicodeError):  # not to be written so
                continue
    whole = bytearray(out.getvalue())
    for place, what, number in these:
        if what == "text":
            at = place * 7919 % len(whole)
            whole[at : at + number % 3] = bytes([number % 256])
    return bytes(whole)


def _change_member(members: list[tuple[tarfile.TarInfo, bytes]], place: int, what: str, number: int) -> None:
    at = place % len(members)
    member = copy.copy(members[at][0])
    match what:
        case "remove" if len(members) > 1:
            del members[at]
        case "repeat":
            members += [members[at]] * _COUNTS[number % 3]
        case "value" | "rename":
            texts = [one for one in _TEXTS if one]
            member.name = texts[number % len(texts)] if number % 2 else f"case/{texts[number % len(texts)]}"
            members[at] = member, members[at][1]
        case "copy":
            member.type = _TYPES[number % len(_TYPES)]
            member.linkname = members[number // 9 % len(members)][0].name if number % 2 else ".." + "/.." * (number % 4)
            members[at] = member, members[at][1]
        case "nest":
            member.size = (1 << 20, 1 << 24, 1 << 33)[number % 3]
            members[at] = member, members[at][1]
