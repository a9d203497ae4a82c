"""`traduko artifacts`: what a root holds, row by row where wanted."""

import argparse
import dataclasses
import os
from collections.abc import Callable, Iterator

from flows.commands.options import Commands, command, json_option
from flows.commands.output import put, put_json
from flows.run import root_folder
from pipeline.artifact import Json
from pipeline.errors import InputError, TradukoError, printable
from pipeline.inventory import (
    Entry,
    Inventory,
    damage,
    lineage,
    remove,
    take_stock,
)
from pipeline.stages import flatten

NAME = "STAGE or STAGE:SOURCE of the recipe that ran last, RECIPE/STAGE, or STAGE/FINGERPRINT"


def add(commands: Commands) -> None:
    """Add the command."""
    parser = command(
        commands,
        "artifacts",
        _list,
        "list the artifacts of a root, look into them, verify and remove them",
        "traduko artifacts show clean --rule length --sample 20",
    )
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    _options(_verb(verbs, "list", _list, "what there is"))
    show = _verb(verbs, "show", _show, "what one is: statistics, files, rows")
    _options(show)
    show.add_argument("name", metavar="NAME", help=NAME)
    show.add_argument("--rule", metavar="RULE", help="rows that this rule rejected")
    show.add_argument("--sample", type=int, metavar="N", help="so many rows, the same each time: kept ones, or with --rule rejected ones; default 20")  # fmt: skip
    _options(_verb(verbs, "verify", _verify, "compare every byte with the manifests"))
    origin = _verb(verbs, "lineage", _lineage, "what one was made from, back to files")
    _options(origin)
    origin.add_argument("name", metavar="NAME", help=NAME)
    collect = _verb(verbs, "collect", _collect, "find what the last run of no recipe needs")
    _options(collect)
    collect.add_argument("--delete", action="store_true", help="remove it")


def _verb(
    verbs: Commands,
    name: str,
    function: Callable[[argparse.Namespace], None],
    about: str,
) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=about, description=f"{about[0].upper()}{about[1:]}.")
    parser.set_defaults(command=function)
    return parser


def _options(parser: argparse.ArgumentParser) -> None:
    json_option(parser)
    parser.add_argument("--root", metavar="FOLDER", help="default TRADUKO_ROOT, or ./artifacts")


def _stock(arguments: argparse.Namespace) -> Inventory:
    return take_stock(root_folder(arguments.root, os.environ))


def _list(arguments: argparse.Namespace) -> None:
    inventory = _stock(arguments)
    if arguments.json:
        put_json({"artifacts": [_document(entry) for entry in inventory.entries]})
        return
    for entry in inventory.entries:
        rows = "" if entry.num_rows is None else f"{entry.num_rows:,} rows"
        size = f"{entry.num_bytes / 1e6:,.1f} MB"
        started = entry.artifact.manifest.started_at
        used_by = ", ".join(entry.names) or "-"
        put(f"{entry.id:<26} {started}  {size:>12} {rows:>18}  {used_by}")


def _document(entry: Entry) -> Json:
    manifest = entry.artifact.manifest
    return {
        "stage": manifest.stage,
        "fingerprint": manifest.fingerprint,
        "folder": str(entry.artifact.folder),
        "names": list(entry.names),
        "rows": entry.num_rows,
        "bytes": entry.num_bytes,
        "started_at": manifest.started_at,
        "took_s": manifest.took_s,
    }


def _show(arguments: argparse.Namespace) -> None:
    entries = _stock(arguments).named(arguments.name)
    if arguments.rule or arguments.sample is not None:
        _show_rows(arguments, entries)
    elif arguments.json:
        put_json({"artifacts": [dataclasses.asdict(entry.artifact.manifest) for entry in entries]})
    else:
        for entry in entries:
            put("\n".join(_manifest_lines(entry)))


def _manifest_lines(entry: Entry) -> Iterator[str]:
    manifest = entry.artifact.manifest
    yield f"{entry.id}  {', '.join(entry.names)}"
    yield f"  folder   {entry.artifact.folder}"
    yield f"  built    {manifest.started_at} in {manifest.took_s} s on {manifest.host}"
    for title, values in (("config", manifest.config), ("stats", manifest.stats)):
        for key, value in flatten(values).items():
            yield printable(f"  {title:<8} {key} = {value}")
    for name, fingerprint, _ in manifest.inputs:
        yield f"  input    {name} {fingerprint[:16]}"
    for file in manifest.files:
        rows = "" if file.rows is None else f"  {file.rows:,} rows"
        yield f"  file     {file.path}  {file.bytes:,} bytes{rows}"


def _show_rows(arguments: argparse.Namespace, entries: list[Entry]) -> None:
    from pipeline.drawn import draw_rows

    number = 20 if arguments.sample is None else arguments.sample
    if number < 1:
        raise InputError(f"--sample must be at least 1, but is {number}.")
    rows = [row for entry in entries for row in draw_rows(entry.artifact, arguments.rule, number)]
    if arguments.json:
        put_json({"rows": rows})
        return
    for row in rows:
        rule = f"  {row['rule']}" if "rule" in row else ""
        put(printable(f"{row['source']}:{row['line']}{rule}"))
        put(f"  {printable(row['src'])}\n  {printable(row['tgt'])}")


def _verify(arguments: argparse.Namespace) -> None:
    entries = _stock(arguments).entries
    found = {entry.id: damage(entry.artifact) for entry in entries}
    damaged = [f"{name}: {what}" for name, what in found.items() if what]
    if damaged:
        raise TradukoError(
            f"{len(damaged)} of {len(found)} artifacts are damaged; `traduko run` builds those that "
            f"it needs again. {'; '.join(damaged)}."
        )
    if arguments.json:
        put_json({"verified": len(found)})
    else:
        put(f"{len(found)} artifacts are what their manifests say.")


def _lineage(arguments: argparse.Namespace) -> None:
    inventory = _stock(arguments)
    entries = inventory.named(arguments.name)
    found = [line for entry in entries for line in lineage(inventory, entry)]
    if arguments.json:
        put_json({"lineage": [{"depth": depth, "what": text} for depth, text in found]})
    else:
        put("\n".join("  " * depth + printable(text) for depth, text in found))


def _collect(arguments: argparse.Namespace) -> None:
    inventory = _stock(arguments)
    entries = inventory.unneeded()
    if arguments.delete:
        remove(inventory.root, entries)
    freed = sum(entry.num_bytes for entry in entries)
    if arguments.json:
        put_json(
            {
                "unneeded": [_document(entry) for entry in entries],
                "bytes": freed,
                "deleted": arguments.delete,
            }
        )
        return
    for entry in entries:
        put(f"{entry.id:<26} {entry.num_bytes / 1e6:,.1f} MB")
    did = "removed" if arguments.delete else "not needed by any recipe's last run; --delete removes"
    put(f"{len(entries)} artifacts, {freed / 1e6:,.1f} MB: {did}")
