"""`default_js_domain { account: domain }`: an account without JetStream uses that of a domain under the usual names.

What its clients publish for JetStream is mapped to the names of the domain, which leaf node connections let through.
"""

from collections.abc import Mapping as Settings
from typing import Any, Final

import attrs

from jetraft.api.config.settings import OptionsError
from jetraft.api.exchange.values import Destination, Mapping
from jetraft.api.options.options import Options
from jetraft.store.model.gosyntax import go_quote
from jetraft.store.model.ids import GLOBAL_ACCOUNT

JETSTREAM: Final = ("$JS.API.>", "$KV.>", "$OBJ.>")
KEY: Final = "default_js_domain"


def mappings_to(domain: str) -> tuple[Mapping, ...]:
    """Those of an account that uses a domain."""
    subjects = [source.removeprefix("$JS.API.") for source in JETSTREAM]
    to = [(Destination(subject=f"$JS.{domain}.API.{subject}"),) for subject in subjects]
    return tuple(Mapping(source=source, destinations=one) for source, one in zip(JETSTREAM, to, strict=True))


def with_domains(options: Options, domains: Settings[str, str]) -> Options:
    """The options with the mappings of these accounts. Raises OptionsError."""
    if not domains:
        return options
    if options.trust is not None:
        raise OptionsError(f'"{KEY}" together with operators is not served by jetraft yet')
    limits = options.jetstream_accounts.limits
    for account, domain in domains.items():
        if not domain or any(char in domain for char in " .*>"):
            wrong = f"invalid domain name {go_quote(domain)}"
            raise OptionsError(f"{KEY} contains account {go_quote(account)} with {wrong}")
        if options.jetstream is not None and limits.get(account) is not None:
            raise OptionsError(f"{KEY} contains account name {go_quote(account)} with enabled JetStream")
    changed: dict[str, Any] = {
        "accounts": tuple(
            attrs.evolve(
                one,
                sharing=attrs.evolve(one.sharing, mappings=(*one.sharing.mappings, *mappings_to(domains[one.name]))),
            )
            if one.name in domains
            else one
            for one in options.accounts
        )
    }
    if GLOBAL_ACCOUNT in domains:
        changed["mappings"] = (*options.mappings, *mappings_to(domains[GLOBAL_ACCOUNT]))
    return attrs.evolve(options, **changed)
