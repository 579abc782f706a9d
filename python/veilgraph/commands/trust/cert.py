"""`veilgraph cert`: keys and certificates, which each organisation makes for itself."""

from __future__ import annotations

from pathlib import Path

import click

from veilgraph.commands import arguments
from veilgraph.ir.errors import UsageError
from veilgraph.reports.tables import show, show_json
from veilgraph.runtime.client.client_config import ClientConfig
from veilgraph.runtime.service.enrolled import make_token
from veilgraph.runtime.session import certificates
from veilgraph.runtime.session.certificates import CertificateFiles, Description
from veilgraph.runtime.session.config import Config
from veilgraph.runtime.session.public_keys import text_of
from veilgraph.serving.enrolling import enrol

EPILOG = """\b
Example, at alice's: a key that stays there, and a certificate for bob and carol:
  veilgraph cert init alice --dir keys --host alice.example
"""
RENEWAL = """\b
Example, before the certificate expires:
  veilgraph cert issue alice --dir keys --host alice.example --beside
  (alice.crt goes to the others, who put it in place of the old file)
  veilgraph cert retire alice --dir keys
"""
RETIRING = """\b
Example, once all others have the file with both:
  veilgraph cert retire alice --dir keys
"""
SHOWING = """\b
Example, at bob's, while alice reads hers aloud:
  veilgraph cert show alice.crt
"""

AUTHOR = """\b
Example, at the host that compiles plans:
  veilgraph cert author author.key
"""

TOKEN = """\b
Example, at alice's, for a client that asks her service:
  veilgraph cert token patient --config alice.yaml
"""
ENROLMENT = """\b
Example, at the client's, with what alice, bob and carol each gave it:
  veilgraph cert enrol --config patient.yaml --token alice=... --token bob=... --token carol=...
"""

directory_option = click.option(
    "--dir",
    "directory",
    type=arguments.PATH,
    default=".",
    show_default=True,
    help="Where NAME.key and NAME.crt lie.",
)
host_option = click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="HOST",
    help="A host name or address to mention in the certificate; what is trusted is the key.",
)
days_option = click.option(
    "--days",
    type=int,
    default=certificates.VALID_DAYS,
    show_default=True,
    help="How long the certificate is valid.",
)


@click.group("cert")
def command() -> None:
    """Make keys and certificates for mutual TLS, and keys of authors.

    There is no authority that all trust: each party makes its own key and certificate, and the
    others name that certificate, or its fingerprint, in their parties.yaml.
    """


@command.command("init", epilog=EPILOG)
@click.argument("name")
@directory_option
@host_option
@days_option
@click.option("--force", is_flag=True, help="Replace a key that is there.")
@arguments.json_option
def init(
    name: str, directory: Path, hosts: tuple[str, ...], days: int, force: bool, as_json: bool
) -> None:
    """Make a private key for party NAME, and its first certificate."""
    files = certificates.init(directory, name, hosts, days=days, force=force)
    _report(name, files, as_json)


@command.command("issue", epilog=RENEWAL)
@click.argument("name")
@directory_option
@host_option
@days_option
@click.option(
    "--beside",
    is_flag=True,
    help="Keep the old one in the file, and show it until `cert retire`: nobody is cut off.",
)
@arguments.json_option
def issue(
    name: str, directory: Path, hosts: tuple[str, ...], days: int, beside: bool, as_json: bool
) -> None:
    """Make a new certificate for the key that party NAME has, in place of the old one."""
    made = certificates.issue(directory, name, hosts, days=days, beside=beside)
    _report(name, made, as_json)


@command.command("retire", epilog=RETIRING)
@click.argument("name")
@directory_option
@arguments.json_option
def retire(name: str, directory: Path, as_json: bool) -> None:
    """End the older of party NAME's two certificates: it shows the newer from its next start."""
    _report(name, certificates.retire(directory, name), as_json)


@command.command("show", epilog=SHOWING)
@click.argument("file", type=arguments.PATH)
@arguments.json_option
def show_one(file: Path, as_json: bool) -> None:
    """Show whose certificate FILE is, for how long, and its fingerprint, to be read aloud."""
    found = [certificates.described(each) for each in certificates.load_certificates(file)]
    if as_json:
        (first, *others) = map(vars, found)
        show_json({**first, "next": others[0]} if others else first)
        return
    for shown in found:
        _read_aloud(file, shown)


def _read_aloud(file: Path, shown: Description) -> None:
    groups = [shown.fingerprint[i : i + 4] for i in range(0, len(shown.fingerprint), 4)]
    show(
        f"{file} is of {shown.name}, from {shown.begins} to {shown.ends}.",
        "Its fingerprint, which both ends of a telephone compare:",
        *(f"  {' '.join(groups[i : i + 4])}" for i in range(0, len(groups), 4)),
    )


@command.command("author", epilog=AUTHOR)
@click.argument("file", type=arguments.PATH)
@arguments.json_option
def author(file: Path, as_json: bool) -> None:
    """Make a private key in FILE with which its owner signs plans.

    It is none of a party's keys for TLS, and need not lie on a party's host.
    """
    public_key = text_of(certificates.init_author(file).public_bytes_raw())
    if as_json:
        show_json({"key": str(file), "public_key": public_key})
        return
    show(
        f"{file} is secret, and stays on this host (mode 0600).",
        f"What it signs is known by its public key: {public_key}",
    )


@command.command("token", epilog=TOKEN)
@click.argument("name")
@arguments.config_option
@click.option(
    "--hours", type=float, default=24.0, show_default=True, help="How long the token is good."
)
@arguments.json_option
def token(name: str, config_file: Path, hours: float, as_json: bool) -> None:
    """Make a token with which client NAME enrols itself at this party's service, once."""
    config = Config.load(config_file)
    if config.clients is None:
        raise UsageError(f"{config_file} has no me.clients.", "It names the folder of clients.")
    made, until = make_token(config.clients, name, hours)
    party, end = config.me.name, f"{until:%Y-%m-%d %H:%M}"
    if as_json:
        show_json({"client": name, "party": party, "token": made, "until": until.isoformat()})
        return
    show(f"Until {end} UTC, once, and for {name} alone; whoever has it may enrol:",
         f"  --token {party}={made}")  # fmt: skip


@command.command("enrol", epilog=ENROLMENT)
@arguments.config_option
@click.option(
    "--token",
    "tokens",
    type=arguments.named,
    multiple=True,
    required=True,
    metavar="PARTY=TOKEN",
    help="What `cert token` printed at that party.",
)
@arguments.json_option
def enrol_self(config_file: Path, tokens: tuple[tuple[str, str], ...], as_json: bool) -> None:
    """Have parties take this client's certificate, by tokens that they gave it."""
    config = ClientConfig.load(config_file)
    named = {party: enrol(config, party, made) for party, made in tokens}
    if as_json:
        show_json({"enrolled": named})
        return
    show(*(f"{party} has enrolled {name}." for party, name in named.items()))


def _report(name: str, files: CertificateFiles, as_json: bool) -> None:
    if as_json:
        paths = {"key": str(files.key), "certificate": str(files.certificate)}
        show_json({"name": name, **paths, "fingerprint": files.fingerprint})
        return
    show(
        f"{files.key} is secret, and stays on this host (mode 0600).",
        f"{files.certificate} is for the other parties, who name it in parties.yaml:",
        f"  - {{name: {name}, host: HOST, port: PORT, fingerprint: {files.fingerprint}}}",
    )
