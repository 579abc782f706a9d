"""`veilgraph join`: parties exchange certificates, and people compare one string of digits."""

from __future__ import annotations

from pathlib import Path

import click
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from veilgraph.commands import arguments
from veilgraph.ir.errors import SecurityAbort, UsageError
from veilgraph.ir.files.whole_files import PUBLIC, placed_whole
from veilgraph.reports.tables import progress, show
from veilgraph.runtime.session import certificates
from veilgraph.runtime.session.certificates import check_party_name, load_certificate
from veilgraph.runtime.session.joining import Address, Joined, join, require_addresses

CONFIG = "parties.yaml"
EPILOG = """\b
Example, at alice's, while bob and carol do the same with their names:
  veilgraph join --party alice --with alice=10.0.0.1:7001 \\
      --with bob=10.0.0.2:7001 --with carol=10.0.0.3:7001
"""


@click.command("join", epilog=EPILOG)
@arguments.party_option
@click.option(
    "--with",
    "addresses",
    type=arguments.named_address,
    metavar="NAME=HOST:PORT",
    multiple=True,
    required=True,
    help="Where a party listens; once for every party, this one too, the same everywhere.",
)
@click.option(
    "--dir",
    "folder",
    type=arguments.PATH,
    default=".",
    show_default=True,
    help="Where this party's key and certificate lie, or are made; the others' certificates and "
    "parties.yaml go there.",
)
@click.option(
    "--timeout",
    "seconds",
    type=click.FloatRange(min=0, max=86_400, min_open=True),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the others.",
)
def command(
    party: str, addresses: tuple[tuple[str, Address], ...], folder: Path, seconds: float
) -> None:
    """Exchange certificates with all other parties, and write parties.yaml.

    The network is not trusted: at the end every party sees a string of 15 digits, which people
    read to each other over the telephone. Nothing is written before you say that all are alike.
    """
    listed = arguments.by_name("--with", addresses)
    require_addresses(party, listed)
    for name in listed:
        check_party_name(name)
    others = [folder / f"{name}.crt" for name in listed if name != party]
    for file in (folder / CONFIG, *others):
        if file.exists():
            raise UsageError(f"{file} is there already.", "Move it away, or give another --dir.")
    own = folder / f"{party}.crt"
    if not own.exists():
        certificates.init(folder, party)
    with progress(f"waiting for {', '.join(name for name in sorted(listed) if name != party)}"):
        joined = join(party, listed, load_certificate(own), seconds)
    groups = " ".join(joined.string[i : i + 5] for i in range(0, len(joined.string), 5))
    show("Read these digits to all other parties, by telephone:", f"  {groups}")
    if click.prompt("Do all of them see the same? Type yes or no", err=True) != "yes":
        raise SecurityAbort(
            "Nothing was written: the digits are not confirmed.",
            "Where they differ, somebody stands in between: try again over another network.",
        )
    _write(folder, party, listed, joined)
    show(f"{folder / CONFIG} names all parties and their certificates.")


def _write(folder: Path, party: str, addresses: dict[str, Address], joined: Joined) -> None:
    """The others' certificates, and then the configuration that names them."""
    parties = []
    for name, (host, port) in addresses.items():
        certificate = {"certificate": f"{name}.crt"}
        parties.append({"name": name, "host": host, "port": port, **certificate})
        if name != party:
            made = x509.load_der_x509_certificate(joined.certificates[name])
            _place(folder / f"{name}.crt", made.public_bytes(Encoding.PEM))
    me = {"name": party, "key": f"{party}.key", "state_dir": "state"}
    content = yaml.safe_dump(
        {"parties": parties, "me": me}, sort_keys=False, default_flow_style=None
    )
    _place(folder / CONFIG, content.encode())


def _place(file: Path, content: bytes) -> None:
    try:
        with placed_whole(file, PUBLIC) as written:
            written.write(content)
    except OSError as error:
        raise UsageError(
            f"{file} can't be written: {error.strerror}.", "Choose a directory that is yours."
        ) from error
